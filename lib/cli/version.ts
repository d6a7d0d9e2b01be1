/**
 * The version of the program, from deno.json.
 *
 * @module
 */

import config from "../../deno.json" with { type: "json" };

/** Such as 1.2.3. */
export const VERSION: string = config.version;
