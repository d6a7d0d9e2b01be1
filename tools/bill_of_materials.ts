/**
 * The software bill of materials of the executable, in CycloneDX's JSON: rabbit, the Deno runtime, V8, and the npm packages
 * that are embedded, with the hashes of deno.lock.
 *
 * @module
 */

import { Enums, Models, Serialize, Spec } from "@cyclonedx/cyclonedx-library";
import { BUILD_ONLY } from "./build_only.ts";

/** The part of deno.lock that is read. */
export interface Lock {
  /** The version of each package that deno.json names. */
  readonly specifiers: Readonly<Record<string, string>>;
  /** Packages by name and version. */
  readonly npm: Readonly<Record<string, { readonly integrity: string; readonly dependencies?: readonly string[] }>>;
}

/** A package that is embedded. */
export interface Package {
  readonly name: string;
  readonly version: string;
  /** SHA-512 of its tarball, in hexadecimal. */
  readonly sha512: string;
}

/** The packages that the executable embeds, sorted: those that deno.json names for more than the build, and what they need. */
export function embedded(imports: Readonly<Record<string, string>>, lock: Lock): Package[] {
  const found = new Map<string, Package>();
  const add = (key: string) => {
    if (found.has(key)) return;
    const at = key.indexOf("@", 1);
    const [name, version] = [key.slice(0, at), key.slice(at + 1).split("_")[0]];
    const { integrity, dependencies = [] } = lock.npm[key];
    const sha512 = Uint8Array.fromBase64(integrity.slice("sha512-".length)).toHex();
    found.set(key, { name, version, sha512 });
    for (const dependency of dependencies) {
      // Without a version where there is one only.
      add(dependency in lock.npm ? dependency : Object.keys(lock.npm).find((key) => key.startsWith(`${dependency}@`))!);
    }
  };
  // Such as npm:deno-std@1.4.0/path/posix/join.js.
  const built = ([name]: [string, string]) => !BUILD_ONLY.includes(name);
  for (const [, specifier] of Object.entries(imports).filter(built)) {
    const [, package_] = /^npm:((?:@[^/]+\/)?[^/]+)/.exec(specifier) ?? [];
    if (package_ !== undefined) {
      add(`${package_.slice(0, package_.indexOf("@", 1))}@${lock.specifiers[`npm:${package_}`]}`);
    }
  }
  return [...found.values()].sort((a, b) => `${a.name}@${a.version}` < `${b.name}@${b.version}` ? -1 : 1);
}

/** What a bill of materials says. */
export interface Materials {
  /** The version of rabbit. */
  readonly version: string;
  /** SHA-256 of the executable, in hexadecimal. */
  readonly sha256: string;
  readonly deno: string;
  readonly v8: string;
  readonly packages: readonly Package[];
  /** The license of a package, if it is known. */
  licenseOf(name: string, version: string): string | undefined;
}

/** The bill of materials as JSON, which has neither a time nor a serial number, so that it can be made again. */
export function billOfMaterials({ version, sha256, deno, v8, packages, licenseOf }: Materials): string {
  const component = (
    type: Enums.ComponentType,
    name: string,
    { version, license, hash, purl }: {
      version: string;
      license?: string;
      hash?: Models.Hash;
      purl: string;
    },
  ) => {
    const made = new Models.Component(type, name, {
      version,
      purl,
      bomRef: purl,
      hashes: new Models.HashDictionary(hash === undefined ? [] : [hash]),
    });
    if (license !== undefined) made.licenses.add(new Models.LicenseExpression(license));
    return made;
  };
  const { Application, Framework, Library } = Enums.ComponentType;
  const rabbit = component(Application, "rabbit", {
    version,
    license: "MIT",
    hash: [Enums.HashAlgorithm["SHA-256"], sha256],
    purl: `pkg:generic/rabbit@${version}`,
  });
  const runtime = component(Framework, "deno", {
    version: deno,
    license: "MIT",
    purl: `pkg:github/denoland/deno@v${deno}`,
  });
  const engine = component(Library, "v8", {
    version: v8,
    license: "BSD-3-Clause",
    purl: `pkg:generic/v8@${v8}`,
  });
  runtime.dependencies.add(engine.bomRef);
  const libraries = packages.map(({ name, version, sha512 }) =>
    component(Library, name, {
      version,
      license: licenseOf(name, version),
      hash: [Enums.HashAlgorithm["SHA-512"], sha512],
      purl: `pkg:npm/${name.replace("@", "%40")}@${version}`,
    })
  );
  for (const { bomRef } of [runtime, ...libraries]) rabbit.dependencies.add(bomRef);
  const bom = new Models.Bom({
    metadata: new Models.Metadata({ component: rabbit }),
    components: new Models.ComponentRepository([runtime, engine, ...libraries]),
  });
  const factory = new Serialize.JSON.Normalize.Factory(Spec.Spec1dot6);
  return new Serialize.JsonSerializer(factory).serialize(bom, { sortLists: true, space: 2 }) + "\n";
}
