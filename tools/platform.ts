/**
 * The platform of an executable, from its header: what pip and npm call it.
 *
 * @module
 */

/** Where an executable runs. */
export interface Platform {
  /** The platform tag of a wheel, as in https://packaging.python.org/specifications/platform-compatibility-tags/. */
  readonly wheel: string;
  /** The fields of package.json. */
  readonly npm: { readonly os: string; readonly cpu: string; readonly libc?: string };
}

/** Processors: their number in ELF and in Mach-O, and their names for Linux wheels, macOS wheels and npm. */
const PROCESSORS = [
  { elf: 62, macho: 0x01000007, linux: "x86_64", macos: "x86_64", npm: "x64" },
  { elf: 183, macho: 0x0100000c, linux: "aarch64", macos: "arm64", npm: "arm64" },
];

const [ELF, MACHO] = [0x464c457f, 0xfeedfacf];

/** Load commands of Mach-O that hold the least version of macOS, and where. */
const VERSIONS: ReadonlyMap<number, number> = new Map([[0x32, 12], [0x24, 8]]);

/** A version of a symbol of glibc. The string table ends each with a zero byte. */
const GLIBC = /GLIBC_(\d+)\.(\d+)(?:\.\d+)?\0/g;

/** The part of the file that is searched at a time. A version between two parts is found because they overlap. */
const [PART, OVERLAP] = [1 << 24, 64];

/** The platform of an executable. @throws {Error} it is for an unsupported one */
export function platformOf(bytes: Uint8Array): Platform {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const magic = bytes.length < 32 ? 0 : view.getUint32(0, true);
  const processor = PROCESSORS.find(({ elf, macho }) =>
    magic === ELF ? view.getUint16(18, true) === elf : magic === MACHO && view.getUint32(4, true) === macho
  );
  if (processor === undefined) throw new Error("not an executable for Linux or macOS, x86-64 or arm64");
  if (magic === ELF) {
    const [major, minor] = latest(bytes);
    return {
      wheel: `manylinux_${major}_${minor}_${processor.linux}`,
      npm: { os: "linux", cpu: processor.npm, libc: "glibc" },
    };
  }
  const [major, minor] = leastMacos(view);
  return { wheel: `macosx_${major}_${minor}_${processor.macos}`, npm: { os: "darwin", cpu: processor.npm } };
}

/** The latest version of glibc that an executable needs a symbol of. */
function latest(bytes: Uint8Array): [number, number] {
  let found: [number, number] = [0, 0];
  const decoder = new TextDecoder("latin1");
  for (let at = 0; at < bytes.length; at += PART) {
    for (const match of decoder.decode(bytes.subarray(at, at + PART + OVERLAP)).matchAll(GLIBC)) {
      const [major, minor] = match.slice(1).map(Number);
      if (major > found[0] || (major === found[0] && minor > found[1])) found = [major, minor];
    }
  }
  if (found[0] === 0) throw new Error("the executable needs no glibc; it is not one of deno compile");
  return found;
}

/** The version of macOS that a Mach-O file needs. Since macOS 11, wheels name its major version alone. */
function leastMacos(view: DataView): [number, number] {
  const count = view.getUint32(16, true);
  for (let n = 0, at = 32; n < count; n++, at += view.getUint32(at + 4, true)) {
    const place = VERSIONS.get(view.getUint32(at, true));
    if (place === undefined) continue;
    const version = view.getUint32(at + place, true);
    return version >> 16 >= 11 ? [version >> 16, 0] : [version >> 16, (version >> 8) & 255];
  }
  throw new Error("the executable does not say which macOS it needs");
}
