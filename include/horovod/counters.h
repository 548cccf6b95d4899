/* What a rank counts: the words that hvd_config's `counters` names. A part of horovod.h.
 *
 * Each rank counts in words of 64 bits, which others may read at any time: each word alone is consistent, several are
 * not. Times are nanoseconds of CLOCK_MONOTONIC. A number is added to for as long as the memory lives, also by later
 * engines, unless it says "now". The first words are the caller's; the core does not touch them. */
#ifndef HOROVOD_COUNTERS_H_
#define HOROVOD_COUNTERS_H_

typedef enum hvd_counter {
  HVD_COUNTER_LAYOUT = 0, /* the caller's: HVD_COUNTERS_LAYOUT, once the memory is ready */
  HVD_COUNTER_PID = 1,
  HVD_COUNTER_RANK = 2,
  HVD_COUNTER_SIZE = 3,
  HVD_COUNTER_EPOCH = 4,
  HVD_COUNTER_RESETS = 5,
  HVD_COUNTER_COMMITS = 6,
  HVD_COUNTER_BEGAN_NS = 7,
  HVD_COUNTER_PAUSED_NS = 8,       /* since BEGAN_NS, without an engine */
  HVD_COUNTER_PAUSED_SINCE_NS = 9, /* when this pause began; 0: an engine runs. The last of the caller's words */
  HVD_COUNTER_BATCHES = 16,
  HVD_COUNTER_TENSORS = 17,
  HVD_COUNTER_SLEEPS = 18,
  HVD_COUNTER_IN_FLIGHT = 19,       /* now: submitted and not done */
  HVD_COUNTER_STEPS = 20,           /* a step ends where a name comes again */
  HVD_COUNTER_BLOCKED_NS = 21,      /* at least one thread of the program waited in the library */
  HVD_COUNTER_TRANSFER_NS = 22,     /* and a batch ran: part of BLOCKED_NS */
  HVD_COUNTER_BATCH_NS = 23,        /* at least one batch was under way */
  HVD_COUNTER_PENDING_NS = 24,      /* tensors had been submitted, other ranks were missing, and no batch ran */
  HVD_COUNTER_BLOCKED_THREADS = 25, /* now; with the next two, what is to be added to the sums above */
  HVD_COUNTER_BLOCKED_SINCE_NS = 26,
  HVD_COUNTER_BATCH_NS_THEN = 27,  /* BATCH_NS, with the batch that ran, at BLOCKED_SINCE_NS */
  HVD_COUNTER_BATCH_SINCE_NS = 28, /* now: since when batches are under way; 0: none is */
  HVD_COUNTER_CHANGED_NS = 29,     /* when batches ended last */
  HVD_COUNTER_STALLS = 30,
  HVD_COUNTER_ERRORS = 31,       /* operations that failed, and the failure of the engine */
  HVD_COUNTER_OPERATIONS = 32,   /* two words for each hvd_op_type up to HVD_RECV: tensors of this rank, bytes */
  HVD_COUNTER_ERROR_TURN = 50,   /* odd while the text changes */
  HVD_COUNTER_PROCESSOR_NS = 51, /* that all threads of the process have used, as it was a moment ago */
  HVD_COUNTER_ENGINE = 52,       /* now: the number of the engine that counts here; each has its own */
  HVD_COUNTER_ERROR_TEXT = 64,   /* 256 bytes: of the last error, UTF-8, with a closing NUL */
  HVD_COUNTER_WORDS = 96,
} hvd_counter;

/* The number of this layout. */
#define HVD_COUNTERS_LAYOUT 1

#endif /* HOROVOD_COUNTERS_H_ */
