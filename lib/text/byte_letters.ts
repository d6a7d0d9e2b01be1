/**
 * The characters that stand for bytes in the tokens of byte-level BPE (GPT-2's `bytes_to_unicode`): none is a space or a
 * control character.
 *
 * @module
 */

/** The character of each byte: printable Latin-1 characters stand for themselves, other bytes are U+0100 and up. */
export const BYTE_LETTERS: readonly string[] = (() => {
  const plain = (byte: number) => (byte > 32 && byte < 127) || (byte > 160 && byte < 256 && byte !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(plain(byte) ? byte : next++));
})();
