/**
 * How the tokens of a byte-level BPE write bytes (GPT-2's `bytes_to_unicode`): each as one character that is neither a
 * space nor a control character.
 *
 * @module
 */

/** The character of each byte: printable Latin-1 stands for itself, the other bytes follow from U+0100 on. */
export const BYTE_LETTERS: readonly string[] = (() => {
  const plain = (byte: number) => (byte > 32 && byte < 127) || (byte > 160 && byte < 256 && byte !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(plain(byte) ? byte : next++));
})();
