/**
 * The layout of packed matrices, prepared activations and caches: the sizes that the kernels and their callers share.
 * AssemblyScript and TypeScript both compile this file, so it contains only constants.
 *
 * Matrices are packed when they are loaded (pack.as.ts), in groups of {@link GROUP} rows; a group is a sequence of blocks
 * of {@link COLUMNS} columns. A vector has values of the first 4 rows of a group, or of the last 4; the two vectors are
 * adjacent in memory:
 *
 *     q4   for c in 0..3, 4 bytes of each row: columns 4c..4c+3 in the low nibbles, 16+4c..16+4c+3 in the high ones,
 *          each as level + 8
 *     q8   for j in 0..15, 2 bytes of each row: column j, column 16+j
 *     16   for j in 0..15, 4 bytes of each row: the same with 16-bit floats
 *     f32  for j in 0..15, column j of each row, then column 16+j of each
 *
 * A block of q4 and q8 ends with the binary16 scales of the 8 rows.
 *
 * Integer activations are blocks of 32 with one binary32 scale. The activations of a token are stored as
 *
 *     blocks * 32 integers | blocks scales | blocks times 8 * sum of the integers (int32)
 *
 * without gaps (activations.as.ts).
 *
 * @module
 */

/** Rows in a group. */
export const GROUP = 8;
/** Columns in a block of activations or of a packed matrix. */
export const COLUMNS = 32;

/** The kinds of weights, as numbered in the kernels. Those below {@link BF16} have blocks with a scale. */
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

/** Bytes of the scales in a block of a group. */
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
/** Bytes of a block of int8 activations, including its scale and its sum. */
export const BLOCK_I8 = COLUMNS + 8;
/** Bytes of a block of int16 activations, including its scale and its sum. */
export const BLOCK_I16 = COLUMNS * 2 + 8;

/** Bytes of a block of two groups as binary32. Exact products with several tokens unpack blocks to this size. */
export const UNPACKED = 2 * GROUP_F32;
/** Bytes of the sums of two groups for one token. */
export const UNPACKED_SUMS = 2 * GROUP_RESULT;

/** Streams of a matrix that the kernels for one token read in turn, a group of each: a quad of groups. */
export const STREAMS = 4;

/** Positions in a block of integer keys in a cache; a vector has a pair of values of each of four positions. */
export const KEY_POSITIONS = 8;
/** Positions whose integer values are interleaved in a cache. */
export const VALUE_POSITIONS = 2;
/** Positions over which products with integer values are summed as int32: 32 * 32767 * 2047 < 2^31. */
export const CHUNK = 32;

/** Bytes of the result of comparing two rows: five binary64, padded to a cache line. */
export const COMPARED = 64;

// The parameter block of attention (attention.as.ts): fields of 4 bytes, at these offsets.

/** Address of the query: per head, headDim binary32 or `length` int16. */
export const ATTEND_Q = 0;
/** Address of the factor of each head's scores: 1 / sqrt(headDim), for integers times the scale of the query. */
export const ATTEND_FACTORS = 4;
/**
 * Address of the keys: rows of `length` values, the first headDim of which are used. Binary32 keys must be readable up
 * to a multiple of 4 positions, integer keys up to a multiple of {@link CHUNK}.
 */
export const ATTEND_KEYS = 8;
/** Address of the scales of integer keys, one per position. */
export const ATTEND_KEY_SCALES = 12;
/** Address of the values: see {@link ATTEND_KEYS}. */
export const ATTEND_VALUES = 16;
/** Address of the scales of integer values: see {@link ATTEND_KEY_SCALES}. */
export const ATTEND_VALUE_SCALES = 20;
/** The number of positions. */
export const ATTEND_COUNT = 24;
/** Values in a row of the cache, a multiple of 16. */
export const ATTEND_LENGTH = 28;
/** Address of the scores: per head, a row of `count` binary32, rounded up to a multiple of {@link CHUNK}. */
export const ATTEND_SCORES = 32;
/** Bytes from one row of scores to the next. */
export const ATTEND_SCORE_ROW = 36;
/** Address of scratch: `length` binary32 per head. */
export const ATTEND_SUMS = 40;
/** Values in a head, a multiple of 4. */
export const ATTEND_HEAD_DIM = 44;
/** Address of the result: headDim binary32 per head. */
export const ATTEND_OUT = 48;
/** Bytes of the parameter block. */
export const ATTEND_BYTES = 52;
