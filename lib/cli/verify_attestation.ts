/**
 * `rabbit verify --attestation`: verifies a statement on a checkpoint.
 *
 * @module
 */

import { bytesOf } from "../format/checkpoint.ts";
import { openDirectory } from "../proof/attest.ts";
import { verifyAttestationIn, type VerifyAttestationSettings } from "../proof/verify.ts";
import { checkTexts, phasesOf } from "./attest.ts";
import { answering } from "./errors.ts";
import type { Output } from "./output.ts";

/** Verifies a statement, and prints what was checked and what was not. */
export async function verifyStatement(
  path: string,
  attestation: string,
  settings: VerifyAttestationSettings,
  out: Output,
): Promise<number> {
  const { texts: given = [], against } = settings;
  const { checkpoint, ...done } = await answering(
    [path, attestation],
    [...given, ...against ? [against] : []],
    async () => {
      const checkpoint = openDirectory(path);
      if (against !== undefined) await checkTexts(given, against, checkpoint);
      return { checkpoint, ...await verifyAttestationIn(phasesOf("verify"), path, attestation, settings) };
    },
  );
  const { statement: { files, derivation }, signature, key, verified, derived, derivedTensors, measured } = done;
  const { program, time, texts = [], tensors = [], method } = derivation ?? {};
  out.line({
    model: path,
    bytes: bytesOf(checkpoint),
    format: checkpoint.width?.declaration ?? "none",
    method: method?.name,
  });
  if (verified.digest !== undefined) out.line({ digest: verified.digest });
  out.group("attestation", {
    file: attestation,
    program: program?.name,
    version: program?.version,
    revision: program?.revision,
    time,
  });
  const yes = "checked";
  const no = (why: string) => `not checked: ${why}`;
  out.group("signature", {
    result: signature === "valid" ? yes : no(signature === "none" ? "there is none" : "give --public-key"),
    key,
  });
  out.group("files", { result: yes, equal: files.length });
  const absent = "the statement has none";
  const total = checkpoint.tensors.length;
  out.group("tensors", {
    result: derivation ? yes : no(absent),
    total,
    equal: derivation && tensors.length,
  });
  const left = total - derivedTensors;
  const open = left > 0 ? "checked but for the calibrated matrices: give --rederive" : yes;
  out.group("derivation", {
    result: derived ? open : no("give --against"),
    ...derived && { stated: derivation !== undefined, derived: derivedTensors, not_derived: left },
  });
  const rest = texts.map(({ name }) => name).filter((name) => !measured.includes(name));
  const result = texts.length === 0 ? no(absent) : measured.length > 0 ? yes : no("give --against and --text");
  const unmeasured = measured.length > 0 ? rest : [];
  out.group(
    "figures",
    { result, equal: measured.join(",") || undefined, not_checked: unmeasured.join(",") || undefined },
    { result, equal: measured, not_checked: unmeasured },
  );
  out.verdict("OK");
  return 0;
}
