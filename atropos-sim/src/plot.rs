//! The results as one picture: a row for each controller, a column for each scenario, a cell coloured by goodput with the
//! p99 ratio written in it. One sees at a glance who helps where.

use std::fmt::Write as _;

use crate::run::Line;

const CELL_WIDTH: usize = 58;
const CELL_HEIGHT: usize = 26;
const LEFT: usize = 130;
const TOP: usize = 170;
/// Room below the cells for the legend, and the least width that its sentences need.
const BOTTOM: usize = 92;
const LEAST_WIDTH: usize = 720;

/// Draws the picture as SVG.
pub(crate) fn plot(lines: &[Line]) -> String {
    let scenarios = names(lines, |line| &line.scenario);
    let controllers = names(lines, |line| &line.controller);
    let width = (LEFT + CELL_WIDTH * scenarios.len() + 80).max(LEAST_WIDTH);
    let height = TOP + CELL_HEIGHT * controllers.len() + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"12\" y=\"24\" font-size=\"15\">What the innocents got, by controller and scenario</text>\n"
    );
    for (column, scenario) in scenarios.iter().enumerate() {
        let x = LEFT + CELL_WIDTH * column + CELL_WIDTH / 2;
        let y = TOP - 8;
        let _ = writeln!(
            svg,
            "<text transform=\"rotate(-50 {x} {y})\" x=\"{x}\" y=\"{y}\">{}</text>",
            escape(scenario)
        );
    }
    for (row, controller) in controllers.iter().enumerate() {
        let y = TOP + CELL_HEIGHT * row;
        let baseline = y + CELL_HEIGHT / 2 + 4;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{}</text>",
            LEFT - 8,
            escape(controller)
        );
        for (column, scenario) in scenarios.iter().enumerate() {
            let found = lines
                .iter()
                .find(|line| line.controller == *controller && line.scenario == *scenario);
            if let Some(line) = found {
                cell(&mut svg, line, LEFT + CELL_WIDTH * column, y);
            }
        }
    }
    legend(&mut svg, height - BOTTOM + 20);
    svg.push_str("</svg>\n");
    svg
}

fn names(lines: &[Line], name: fn(&Line) -> &String) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in lines {
        if !names.contains(name(line)) {
            names.push(name(line).clone());
        }
    }
    names
}

fn cell(svg: &mut String, line: &Line, x: usize, y: usize) {
    let (width, height) = (CELL_WIDTH - 2, CELL_HEIGHT - 2);
    let fill = colour(line.goodput.mean);
    let title = format!(
        "{} under {}: throughput {:.3}, goodput {:.3}, p99 x{:.2}, drops {:.3} %, wrong cancels {:.2}",
        line.scenario,
        line.controller,
        line.throughput.mean,
        line.goodput.mean,
        line.p99.mean,
        line.innocent_drops.mean * 100.0,
        line.wrong_cancels.mean,
    );
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"><title>{}</title></rect>",
        escape(&title)
    );
    let (middle, baseline) = (x + width / 2, y + height / 2 + 4);
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{baseline}\" text-anchor=\"middle\" pointer-events=\"none\">{}</text>",
        factor(line.p99.mean)
    );
    if line.wrong_cancels.mean > 0.0 {
        let (cx, cy) = (x + width - 5, y + 5);
        let _ = writeln!(
            svg,
            "<circle cx=\"{cx}\" cy=\"{cy}\" r=\"3.5\" fill=\"black\"/>"
        );
    }
}

fn factor(value: f64) -> String {
    if value >= 99.5 {
        ">99".to_owned()
    } else {
        format!("{value:.2}")
    }
}

/// Red, yellow, blue: nothing served in time, half, as much as without the trouble. Whoever sees no green can tell them apart.
const SCALE: [[f64; 3]; 3] = [
    [244.0, 109.0, 67.0],
    [255.0, 255.0, 191.0],
    [116.0, 173.0, 209.0],
];

/// The colour of a goodput. It is squared first: the last per cents count most.
fn colour(goodput: f64) -> String {
    let place = 2.0 * goodput.clamp(0.0, 1.0).powi(2);
    let (from, part) = if place < 1.0 {
        (0, place)
    } else {
        (1, place - 1.0)
    };
    let level =
        |n: usize| (SCALE[from][n] + part * (SCALE[from + 1][n] - SCALE[from][n])).round() as u8;
    format!("#{:02x}{:02x}{:02x}", level(0), level(1), level(2))
}

fn legend(svg: &mut String, y: usize) {
    for step in 0..=10 {
        let x = LEFT + step * 30;
        let share = step as f64 / 10.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"28\" height=\"12\" fill=\"{}\"/>",
            colour(share)
        );
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{}\">{share:.1}</text>", y + 24);
    }
    let sentences = [
        "Colour: requests served within the objective, relative to the same seeds without the trouble.",
        "Number: p99 latency relative to the same. Dot: somebody innocent was cancelled. Empty: not run.",
    ];
    for (n, sentence) in sentences.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\">{sentence}</text>",
            y + 42 + 16 * n
        );
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_goes_from_red_to_blue() {
        assert_eq!(colour(0.0), "#f46d43");
        assert_eq!(colour(0.5_f64.sqrt()), "#ffffbf");
        assert_eq!(colour(1.0), "#74add1");
        assert_eq!(colour(7.0), colour(1.0));
    }
}
