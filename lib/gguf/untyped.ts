/**
 * Reads untrusted JSON in which missing values are not errors.
 *
 * @module
 */

/** The value at the end of a path of keys; undefined if a value on the path is missing, or is not an object. */
export function at(value: unknown, ...keys: readonly string[]): unknown {
  return keys.reduce((inner, key) => {
    const found = typeof inner === "object" && inner !== null && Object.hasOwn(inner, key);
    return found ? (inner as Record<string, unknown>)[key] : undefined;
  }, value);
}
