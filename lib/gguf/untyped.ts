/**
 * A look into JSON of which nothing is certain, and where what is missing is not a fault.
 *
 * @module
 */

/** The value at the end of a path of keys; undefined where an object on the way is missing, or is none. */
export function at(value: unknown, ...keys: readonly string[]): unknown {
  return keys.reduce((inner, key) => {
    const found = typeof inner === "object" && inner !== null && Object.hasOwn(inner, key);
    return found ? (inner as Record<string, unknown>)[key] : undefined;
  }, value);
}
