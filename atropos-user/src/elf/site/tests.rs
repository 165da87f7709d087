use super::*;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PUSH_RBP: [u8; 1] = [0x55];
const PUSH_R15: [u8; 2] = [0x41, 0x57];
const RET: [u8; 1] = [0xc3];

fn entry(pieces: &[&[u8]]) -> Choice {
    entry_keeping(pieces, Keep::ARGUMENTS)
}

fn entry_keeping(pieces: &[&[u8]], keep: Keep) -> Choice {
    choose(&pieces.concat(), 0x1000, 0x1000, keep).unwrap()
}

#[track_caller]
fn assert_moves(pieces: &[&[u8]], moved: u8, cost: Cost) {
    let choice = entry(pieces);
    assert_eq!((choice.moved, choice.cost), (moved, cost), "{}", choice.why);
}

#[track_caller]
fn assert_stays(pieces: &[&[u8]], reason: &str) {
    let choice = entry(pieces);
    assert_eq!(
        (choice.moved, choice.cost),
        (0, Cost::Expensive),
        "{}",
        choice.why
    );
    assert!(choice.why.contains(reason), "{}", choice.why);
}

#[test]
fn emulated_first_instructions_are_taken_as_they_are() {
    for cheap in [
        &PUSH_RBP[..],
        &PUSH_R15,
        &[0x90],
        &[0x66, 0x90],
        &[0xf3, 0x90],
        &[0x0f, 0x1f, 0x40, 0],
        &[0x0f, 0x1f, 0x44, 0, 0],
        &[0x66, 0x0f, 0x1f, 0x44, 0, 0],
    ] {
        assert_moves(&[cheap, &RET], 0, Cost::Cheap);
    }
    for branch in [
        &[0xe8, 0, 0, 0, 0][..],
        &[0xe9, 1, 0, 0, 0],
        &[0xeb, 0],
        &[0x74, 0],
        &[0x0f, 0x84, 0, 0, 0, 0],
    ] {
        assert_moves(&[branch, &RET], 0, Cost::Emulated);
    }
}

#[test]
fn look_alikes_of_emulated_instructions_are_single_stepped() {
    for (bytes, name) in [
        (&[0x6a, 0x01][..], "push imm8"),
        (&[0xff, 0x37], "push (%rdi)"),
        (&[0x66, 0x50], "push %ax"),
        (&[0x48, 0x50], "push with a needless rex.w"),
        (&[0xe3, 0x00], "jrcxz"),
        (&[0xff, 0xe0], "jmp *%rax"),
        (&ENDBR64, "endbr64"),
    ] {
        let choice = entry(&[bytes, &RET]);
        assert_eq!(
            (choice.moved, choice.cost),
            (0, Cost::Expensive),
            "{name}: {}",
            choice.why
        );
    }
}

#[test]
fn endbr64_is_stepped_over() {
    assert_moves(&[&ENDBR64, &PUSH_RBP, &RET], 4, Cost::Cheap);
    assert_moves(&[&ENDBR64, &PUSH_R15, &RET], 4, Cost::Cheap);
    // xor %eax,%eax writes no argument register.
    assert_moves(&[&ENDBR64, &[0x31, 0xc0], &PUSH_RBP, &RET], 6, Cost::Cheap);
    assert_stays(&[&ENDBR64, &RET], "branches");
}

#[test]
fn instructions_that_leave_arguments_alone_are_crossed() {
    // mov %rdi,%rax; test %rsi,%rsi; je
    assert_moves(
        &[
            &[0x48, 0x89, 0xf8],
            &[0x48, 0x85, 0xf6],
            &[0x74, 0x00],
            &RET,
        ],
        6,
        Cost::Emulated,
    );
    // mov 0x10(%rdi),%eax; push %rbp
    assert_moves(&[&[0x8b, 0x47, 0x10], &PUSH_RBP, &RET], 3, Cost::Cheap);
}

#[test]
fn a_written_argument_register_is_never_crossed() {
    for (write, register) in [
        (&[0x48, 0x89, 0xf7][..], "rdi"),
        (&[0x31, 0xf6], "rsi"),
        (&[0xb2, 0x01], "rdx"),
        (&[0x48, 0xff, 0xc1], "rcx"),
        (&[0x4d, 0x89, 0xc8], "r8"),
        (&[0x4c, 0x8b, 0x4f, 0x08], "r9"),
    ] {
        assert_stays(&[write, &PUSH_RBP, &RET], &format!("writes {register}"));
        assert_stays(
            &[&ENDBR64, write, &PUSH_RBP, &RET],
            &format!("writes {register}"),
        );
    }
    // mul writes rdx without naming it.
    assert_stays(&[&[0x48, 0xf7, 0xe6], &PUSH_RBP, &RET], "writes rdx");
}

#[test]
fn registers_that_nobody_asked_for_may_be_crossed() {
    let pieces: &[&[u8]] = &[&[0x31, 0xf6], &PUSH_RBP, &RET];
    let choice = entry_keeping(
        pieces,
        Keep {
            arguments: 0b1,
            stack: true,
        },
    );
    assert_eq!(
        (choice.moved, choice.cost),
        (2, Cost::Cheap),
        "xor %esi,%esi with only rdi wanted: {}",
        choice.why
    );
}

#[test]
fn the_stack_pointer_is_kept_when_asked_for() {
    // sub $0x18,%rsp; test %rdi,%rdi; je
    let pieces: &[&[u8]] = &[
        &[0x48, 0x83, 0xec, 0x18],
        &[0x48, 0x85, 0xff],
        &[0x74, 0],
        &RET,
    ];
    assert_moves(pieces, 7, Cost::Emulated);
    let choice = entry_keeping(pieces, Keep::ALL);
    assert_eq!((choice.moved, choice.cost), (0, Cost::Expensive));
    assert!(choice.why.contains("writes rsp"), "{}", choice.why);
}

#[test]
fn a_call_is_taken_where_it_stands_but_never_moved_to() {
    assert_stays(&[&[0x31, 0xc0], &[0xe8, 0, 0, 0, 0], &RET], "branches");
}

#[test]
fn an_exchange_that_the_kernel_takes_for_a_nop_carries_no_probe() {
    for bytes in [&[0x41, 0x90][..], &[0x49, 0x90], &[0x66, 0x41, 0x90]] {
        let why = choose(bytes, 0x1000, 0x1000, Keep::ARGUMENTS).unwrap_err();
        assert!(why.contains("would skip"), "{why}");
        assert_stays(&[&ENDBR64, bytes, &PUSH_RBP, &RET], "cannot be probed");
    }
    // xchg %rcx,%rax and xchg %eax,-0x70(%rax) are none of that kind.
    assert!(choose(&[0x48, 0x91], 0x1000, 0x1000, Keep::ARGUMENTS).is_ok());
    assert!(choose(&[0x87, 0x40, 0x90], 0x1000, 0x1000, Keep::ARGUMENTS).is_ok());
}

#[test]
fn written_memory_is_never_crossed() {
    // movq $0,0x10(%rdi): a walk from the argument would see another value.
    assert_stays(
        &[&[0x48, 0xc7, 0x47, 0x10, 0, 0, 0, 0], &PUSH_RBP, &RET],
        "writes memory",
    );
}

#[test]
fn a_branch_or_a_call_is_never_crossed() {
    // jrcxz is single-stepped and branches; syscall leaves the straight line.
    assert_stays(&[&[0xe3, 0x01], &PUSH_RBP, &RET], "branches");
    assert_stays(&[&[0x0f, 0x05], &PUSH_RBP, &RET], "branches");
    assert_stays(&[&[0xff, 0xd0], &PUSH_RBP, &RET], "branches");
}

#[test]
fn a_branch_target_is_never_crossed_nor_taken() {
    // endbr64; push %rbp; jmp back to the push: a loop would fire the probe each round.
    assert_stays(&[&ENDBR64, &PUSH_RBP, &[0xeb, 0xfd]], "lands");
    // test; nop; push; jne to the nop: the target lies between.
    assert_stays(
        &[&[0x85, 0xc0], &[0x31, 0xc0], &PUSH_RBP, &[0x75, 0xfb], &RET],
        "lands",
    );
    // A jump back to the entry itself is a further call of the site, moved or not.
    assert_moves(&[&ENDBR64, &PUSH_RBP, &[0xeb, 0xf9]], 4, Cost::Cheap);
}

#[test]
fn with_a_jump_table_only_a_push_is_moved_to() {
    // movslq (%r10,%rax,4),%rax; add %r10,%rax; jmp *%rax
    let by_distance: &[u8] = &[0x49, 0x63, 0x04, 0x82, 0x4c, 0x01, 0xd0, 0xff, 0xe0];
    // jmp *0x1000(,%rax,8)
    let by_pointer: &[u8] = &[0xff, 0x24, 0xc5, 0, 0x10, 0, 0];
    for table in [by_distance, by_pointer] {
        assert_moves(&[&ENDBR64, &PUSH_RBP, table], 4, Cost::Cheap);
        assert_stays(&[&ENDBR64, &[0x90], table], "branches");
    }
}

#[test]
fn a_tail_call_through_a_pointer_is_no_jump_table() {
    // test %rdi,%rdi; je over the tail call; mov 0x28(%rdi),%rax; jmp *%rax; ret
    let tail: &[u8] = &[
        0x48, 0x85, 0xff, 0x74, 0x06, 0x48, 0x8b, 0x47, 0x28, 0xff, 0xe0,
    ];
    assert_moves(&[tail, &RET], 3, Cost::Emulated);
}

#[test]
fn a_branch_from_before_a_site_inside_a_function_is_seen() {
    // jne over the wanted address onto the push, then mov, push.
    let code = [&[0x75, 0x03][..], &[0x48, 0x89, 0xf8], &PUSH_RBP, &RET].concat();
    let choice = choose(&code, 0x1000, 0x1002, Keep::ARGUMENTS).unwrap();
    assert_eq!(
        (choice.moved, choice.cost),
        (0, Cost::Expensive),
        "{}",
        choice.why
    );
}

#[test]
fn nothing_far_away_is_moved_to() {
    let six = [0x31, 0xc0].repeat(6);
    assert_moves(&[&six[..10], &PUSH_RBP, &RET], 10, Cost::Cheap);
    assert_stays(&[&six, &[0x31, 0xc0], &PUSH_RBP, &RET], "none of the next");
}

#[test]
fn what_the_kernel_refuses_is_an_error() {
    for bytes in [
        &[0xcc][..],
        &[0xf0, 0x48, 0x0f, 0xb1, 0x0f],
        &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        &[0xf4],
    ] {
        let why = choose(bytes, 0x1000, 0x1000, Keep::ARGUMENTS).unwrap_err();
        assert!(why.contains("does not allow"), "{why}");
    }
    assert!(
        choose(&[0x06], 0x1000, 0x1000, Keep::ARGUMENTS)
            .unwrap_err()
            .contains("no instruction")
    );
    assert!(choose(&[], 0x1000, 0x1000, Keep::ARGUMENTS).is_err());
}

#[test]
fn any_bytes_are_answered_without_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..40)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        if let Ok(choice) = choose(&bytes, 0x1000, 0x1000, Keep::ALL) {
            assert!(choice.cost.is_emulated() || choice.moved == 0);
        }
    }
}
