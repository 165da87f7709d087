//! The results as one picture: a row for each controller, a column for each scenario, a cell coloured by goodput with the
//! p99 ratio written in it. One sees at a glance who helps where.

use std::fmt::Write as _;

use crate::run::Line;

const CELL_WIDTH: usize = 58;
const CELL_HEIGHT: usize = 26;
const LEFT: usize = 130;
const TOP: usize = 150;

/// Draws the picture as SVG.
pub(crate) fn plot(lines: &[Line]) -> String {
    let scenarios = names(lines, |line| &line.scenario);
    let controllers = names(lines, |line| &line.controller);
    let (width, height) = (
        LEFT + CELL_WIDTH * scenarios.len() + 80,
        TOP + CELL_HEIGHT * controllers.len() + 60,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
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
    legend(&mut svg, height - 40);
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

/// From red (nothing served in time) over yellow to green (as much as without the trouble).
fn colour(goodput: f64) -> String {
    let hue = 2.0 * goodput.clamp(0.0, 1.0).powi(2);
    // Hue 0 to 2 (red to green) at saturation 70 % and lightness 72 %.
    let level = |part: f64| (255.0 * (0.524 + 0.392 * part.clamp(0.0, 1.0))).round() as u8;
    format!(
        "#{:02x}{:02x}{:02x}",
        level(2.0 - hue),
        level(hue),
        level(0.0)
    )
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
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{}\">{share:.1}</text>", y + 26);
    }
    let x = LEFT + 345;
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{}\">colour: goodput of innocents (1 = as without the trouble); number: p99 ratio; dot: somebody \
         innocent was cancelled</text>",
        y + 11
    );
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
    fn less_goodput_is_redder() {
        assert_eq!(colour(0.0), "#ea8686");
        assert_eq!(colour(1.0), "#86ea86");
    }
}
