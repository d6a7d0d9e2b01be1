/**
 * How packed matrices, prepared activations and caches lie in memory: the sizes that the kernels and their callers
 * share. AssemblyScript and TypeScript both compile this file, so it holds constants and nothing else.
 *
 * Matrices are packed when they are loaded (pack.as.ts), in groups of {@link GROUP} rows; a group is a sequence of blocks
 * of {@link COLUMNS} columns. A vector has the first 4 rows of a group, or the other 4, and the two stand side by side in
 * memory:
 *
 *     q4   for c in 0..3, 4 bytes of each row: columns 4c..4c+3 in the low nibbles, 16+4c..16+4c+3 in the high ones,
 *          each as level + 8
 *     q8   for j in 0..15, 2 bytes of each row: column j, column 16+j
 *     16   for j in 0..15, 4 bytes of each row: the same with 16-bit floats
 *     f32  for j in 0..15, column j of each row, then column 16+j of each
 *
 * and for q4 and q8 a block ends with the binary16 scales of the 8 rows.
 *
 * Activations that are integers are blocks of 32 with one binary32 scale. A token's are stored as
 *
 *     blocks * 32 integers | blocks scales | blocks times 8 * sum of the integers (int32)
 *
 * one after the other (activations.as.ts).
 *
 * @module
 */

/** Rows of a group. */
export const GROUP = 8;
/** Columns of a block, of activations and of every packed matrix. */
export const COLUMNS = 32;

/** The kinds of weights, as the kernels number them. Those below {@link BF16} have blocks with a scale. */
export const Q4 = 0;
/** Q8B32. */
export const Q8 = 1;
/** Bfloat16. */
export const BF16 = 2;
/** Binary16. */
export const F16 = 3;
/** Binary32. */
export const F32 = 4;
/** Binary64: a source of the encoder, never packed. */
export const F64 = 5;

/** Bytes of a block of Q4B32 and of Q8B32 in a file. */
export const Q4_BLOCK = 18;
/** See {@link Q4_BLOCK}. */
export const Q8_BLOCK = 34;

/** Bytes of the scales of a block of a group. */
export const GROUP_SCALES = 2 * GROUP;
/** Bytes of a block of a group without its scales, by kind. */
export const Q4_PAYLOAD = GROUP * COLUMNS / 2;
/** See {@link Q4_PAYLOAD}. */
export const Q8_PAYLOAD = GROUP * COLUMNS;
/** See {@link Q4_PAYLOAD}; BF16 and F16. */
export const GROUP_16 = GROUP * COLUMNS * 2;
/** See {@link Q4_PAYLOAD}. */
export const GROUP_F32 = GROUP * COLUMNS * 4;
/** Bytes of a block of a group with its scales. */
export const GROUP_Q4 = Q4_PAYLOAD + GROUP_SCALES;
/** See {@link GROUP_Q4}. */
export const GROUP_Q8 = Q8_PAYLOAD + GROUP_SCALES;

/** Bytes of the results of a group for one token, in binary32. */
export const GROUP_RESULT = GROUP * 4;

/** Bytes of a block of activations in binary32. */
export const BLOCK_F32 = COLUMNS * 4;
/** Bytes of a block of int8 activations, with its scale and its sum. */
export const BLOCK_I8 = COLUMNS + 8;
/** Bytes of a block of int16 activations, with its scale and its sum. */
export const BLOCK_I16 = COLUMNS * 2 + 8;

/** Bytes of a block of two groups as binary32, which exact products of several tokens unpack. */
export const UNPACKED = 2 * GROUP_F32;
/** Bytes of the sums of two groups for one token. */
export const UNPACKED_SUMS = 2 * GROUP_RESULT;

/** Streams of a matrix that the kernels for one token read at once, a group of each in turn: a quad of groups. */
export const STREAMS = 4;

/** Positions of a block of integer keys in a cache: a vector has a pair of values of four of them. */
export const KEY_POSITIONS = 8;
/** Positions of integer values that stand side by side in a cache. */
export const VALUE_POSITIONS = 2;
/** Positions whose products with integer values are summed before they become binary32: 32 * 32767 * 2047 < 2^31. */
export const CHUNK = 32;

// The parameters of attention (attention.as.ts): 4 bytes each, at these places of a block.

/** Address of the query: headDim binary32 a head, for integers `length` int16. */
export const ATTEND_Q = 0;
/** Address of what the scores of each head are multiplied with: 1 / sqrt(headDim), for integers times the scale of q. */
export const ATTEND_FACTORS = 4;
/** Addresses of the keys and values of the group: rows of `length` values, of which headDim count. Of binary32 keys are
 * readable to a multiple of 4 positions, integers to one of {@link CHUNK}. */
export const ATTEND_KEYS = 8;
/** Addresses of a scale for each position, for integers. */
export const ATTEND_KEY_SCALES = 12;
/** See {@link ATTEND_KEYS}. */
export const ATTEND_VALUES = 16;
/** See {@link ATTEND_KEY_SCALES}. */
export const ATTEND_VALUE_SCALES = 20;
/** Positions. */
export const ATTEND_COUNT = 24;
/** Values of a row of the cache, a multiple of 16. */
export const ATTEND_LENGTH = 28;
/** Address of a row of scores for each head: `count` binary32, rounded up to a multiple of {@link CHUNK}. */
export const ATTEND_SCORES = 32;
/** Bytes from one row of scores to the next. */
export const ATTEND_SCORE_ROW = 36;
/** Address of room for `length` binary32 a head. */
export const ATTEND_SUMS = 40;
/** Values of a head, a multiple of 4. */
export const ATTEND_HEAD_DIM = 44;
/** Address of the result: headDim binary32 a head. */
export const ATTEND_OUT = 48;
/** Bytes of the block. */
export const ATTEND_BYTES = 52;
