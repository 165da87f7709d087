/* Marks for an application in C or C++ that wants to tell Atropos about its tasks and resources. No library is needed.
 *
 * Exactly one source file of each program or library says
 *     #define ATROPOS_IMPLEMENTATION
 * before it includes this; all others just include it.
 *
 * Each function is a USDT probe atropos:NAME with its arguments in order. While nobody watches, a call is a load of two bytes
 * and a branch that is not taken. However often a mark is inlined, its probe has one site: a function of its own that is a
 * nop (five bytes on x86-64) and a return.
 *
 * session: any number or address that stands for whoever does the work, from task_begin to session_end.
 * resource: a number that the application gives each of its resources; instance: one lock, page or queue of them;
 * mode: how it is held, 0 where there is only one way; amount: units brought in or thrown out; done: work so far,
 * total: work in all, in one unit.
 *
 * Of a resource of kind MEMORY (a cache, a buffer pool) instance names one unit and is never 0. wait_begin and wait_end stand
 * around bringing a unit in; between them, use says that it is there, and evict who had to make room.
 *
 * mode 1 means: shared with others who say 1; anything else excludes everybody.
 *
 * Once, in one source file, outside of functions, an application declares its resources and the signals that end its work:
 *     ATROPOS_RESOURCE(0, LOCK, "table_lock")    (number, kind: LOCK QUEUE MEMORY CPU IO, name of letters, digits, single _)
 *     ATROPOS_CANCELS_TASK(SIGUSR1)              (sent to the thread that began the task; does nothing between two tasks)
 *     ATROPOS_ENDS_SESSION(SIGUSR2)              (sent to the thread that began the session's last task)
 *
 * On processors other than x86-64 and aarch64 marks do nothing.
 */
#ifndef ATROPOS_H
#define ATROPOS_H

#include <stdint.h>

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__LP64__) && defined(__ELF__)
#define ATROPOS_MARKS 1
#endif

#ifdef ATROPOS_MARKS

#if defined(__x86_64__)
#define ATROPOS_NOP ".byte 0x0f,0x1f,0x44,0x00,0x00"
#define ATROPOS_1 "8@%rdi"
#define ATROPOS_2 ATROPOS_1 " 8@%rsi"
#define ATROPOS_3 ATROPOS_2 " 8@%rdx"
#define ATROPOS_4 ATROPOS_3 " 8@%rcx"
#else
#define ATROPOS_NOP "nop"
#define ATROPOS_1 "8@x0"
#define ATROPOS_2 ATROPOS_1 " 8@x1"
#define ATROPOS_3 ATROPOS_2 " 8@x2"
#define ATROPOS_4 ATROPOS_3 " 8@x3"
#endif

/* The site, the semaphore and the note of one probe. */
#define ATROPOS_SITE(name, operands)                                                            \
  __asm__(".pushsection .text.atropos_probes,\"ax\",%progbits\n"                                \
          ".globl atropos_c_" name "\n.hidden atropos_c_" name "\n"                             \
          ".type atropos_c_" name ",%function\natropos_c_" name ":\n"                           \
          "990: " ATROPOS_NOP "\nret\n.size atropos_c_" name ", . - atropos_c_" name "\n"       \
          ".popsection\n"                                                                       \
          ".pushsection .probes,\"aw\",%progbits\n.balign 2\n"                                  \
          ".globl atropos_c_" name "_semaphore\n.hidden atropos_c_" name "_semaphore\n"         \
          ".type atropos_c_" name "_semaphore,%object\n"                                        \
          "atropos_c_" name "_semaphore: .2byte 0\n.size atropos_c_" name "_semaphore, 2\n"     \
          ".popsection\n"                                                                       \
          ".ifndef _.stapsdt.base\n"                                                            \
          ".pushsection .stapsdt.base,\"aG\",%progbits,.stapsdt.base,comdat\n"                  \
          ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n"                                      \
          "_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n"                                 \
          ".popsection\n.endif\n"                                                               \
          ".pushsection .note.stapsdt,\"\",%note\n.balign 4\n"                                  \
          ".4byte 992f-991f, 994f-993f, 3\n"                                                    \
          "991: .asciz \"stapsdt\"\n992: .balign 4\n"                                           \
          "993: .8byte 990b, _.stapsdt.base, atropos_c_" name "_semaphore\n"                    \
          ".asciz \"atropos\", \"" name "\", \"" operands "\"\n"                                \
          "994: .balign 4\n.popsection\n")

/* A note without a site. */
#define ATROPOS_DECLARATION(name)                                                               \
  __asm__(".pushsection .note.stapsdt,\"\",%note\n.balign 4\n"                                  \
          ".4byte 992f-991f, 994f-993f, 3\n"                                                    \
          "991: .asciz \"stapsdt\"\n992: .balign 4\n"                                           \
          "993: .8byte 0, 0, 0\n"                                                               \
          ".asciz \"atropos\", \"" name "\", \"\"\n"                                             \
          "994: .balign 4\n.popsection\n");

#ifdef __cplusplus
extern "C" {
#endif

#define ATROPOS_HIDDEN __attribute__((visibility("hidden")))

/* A mark: looks at its semaphore and, if that is raised, passes its site. */
#define ATROPOS_MARK(name, parameters, arguments)                                                \
  extern volatile uint16_t atropos_c_##name##_semaphore ATROPOS_HIDDEN;                          \
  void atropos_c_##name parameters ATROPOS_HIDDEN;                                               \
  static inline __attribute__((always_inline, unused)) void atropos_##name parameters {          \
    if (__builtin_expect(atropos_c_##name##_semaphore != 0, 0)) atropos_c_##name arguments;      \
  }
#else
#define ATROPOS_DECLARATION(name)
#ifdef __cplusplus
extern "C" {
#endif
#define ATROPOS_MARK(name, parameters, arguments) \
  static inline __attribute__((unused)) void atropos_##name parameters { (void)sizeof arguments; }
#endif

#define ATROPOS_RESOURCE(number, kind, name) ATROPOS_DECLARATION("resource__" #number "__" #kind "__" name)
/* Named by their argument's own word, which may be a macro: it is not expanded. */
#define ATROPOS_CANCELS_TASK(signal) ATROPOS_DECLARATION("cancel__task__" #signal)
#define ATROPOS_ENDS_SESSION(signal) ATROPOS_DECLARATION("cancel__session__" #signal)

/* The session starts a task, and has finished it. */
ATROPOS_MARK(task_begin, (uint64_t session), (session))
ATROPOS_MARK(task_end, (uint64_t session), (session))
/* The session is gone with everything it held. */
ATROPOS_MARK(session_end, (uint64_t session), (session))
/* The session starts to wait for an instance, and waits no longer, whether it got it or gave up. */
ATROPOS_MARK(wait_begin, (uint64_t session, uint64_t resource, uint64_t instance, uint64_t mode),
             (session, resource, instance, mode))
ATROPOS_MARK(wait_end, (uint64_t session, uint64_t resource, uint64_t instance), (session, resource, instance))
/* The session holds an instance from here on, and lets go of it. */
ATROPOS_MARK(acquire, (uint64_t session, uint64_t resource, uint64_t instance, uint64_t mode),
             (session, resource, instance, mode))
ATROPOS_MARK(release, (uint64_t session, uint64_t resource, uint64_t instance), (session, resource, instance))
/* The session's task enters a queue, and leaves it and runs. */
ATROPOS_MARK(enqueue, (uint64_t session, uint64_t resource, uint64_t instance), (session, resource, instance))
ATROPOS_MARK(dequeue, (uint64_t session, uint64_t resource, uint64_t instance), (session, resource, instance))
/* The session brings units into a shared store, and throws a unit out. */
ATROPOS_MARK(use, (uint64_t session, uint64_t resource, uint64_t instance, uint64_t amount),
             (session, resource, instance, amount))
ATROPOS_MARK(evict, (uint64_t session, uint64_t resource, uint64_t instance, uint64_t amount),
             (session, resource, instance, amount))
/* What the session is doing from here on, in words that stay where they are while it does that. */
ATROPOS_MARK(label, (uint64_t session, const char *text), (session, text))
/* Work that the session's task has done so far. */
ATROPOS_MARK(progress, (uint64_t session, uint64_t done), (session, done))
/* Work that it will take in all, in the same unit: said again with each progress, for whoever came just now. */
ATROPOS_MARK(work, (uint64_t session, uint64_t total), (session, total))

#ifdef __cplusplus
}
#endif

#if defined(ATROPOS_IMPLEMENTATION) && defined(ATROPOS_MARKS)
ATROPOS_SITE("task_begin", ATROPOS_1);
ATROPOS_SITE("task_end", ATROPOS_1);
ATROPOS_SITE("session_end", ATROPOS_1);
ATROPOS_SITE("wait_begin", ATROPOS_4);
ATROPOS_SITE("wait_end", ATROPOS_3);
ATROPOS_SITE("acquire", ATROPOS_4);
ATROPOS_SITE("release", ATROPOS_3);
ATROPOS_SITE("enqueue", ATROPOS_3);
ATROPOS_SITE("dequeue", ATROPOS_3);
ATROPOS_SITE("use", ATROPOS_4);
ATROPOS_SITE("evict", ATROPOS_4);
ATROPOS_SITE("label", ATROPOS_2);
ATROPOS_SITE("progress", ATROPOS_2);
ATROPOS_SITE("work", ATROPOS_2);
#endif

#endif
