/**
 * `rabbit completions`: prints completion scripts for bash, zsh and fish.
 *
 * @module
 */

import { type Command, command, COMMON, type Flag, type Positional, type Type, valueOf } from "./arguments.ts";
import { describe } from "./help.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;

/** The options of the program itself. */
const TOP = ["--help", "--version"];

/**
 * `rabbit completions`
 *
 * @param commands loads all commands, including this one
 */
export function completionsCommand(commands: () => Promise<readonly Command[]>): Command {
  return command({
    name: "completions",
    group: "other",
    summary: "print a script that completes the command line in a shell",
    positionals: [{ name: "SHELL", type: { kind: "choice", of: SHELLS }, help: SHELLS.join(", ") }],
    flags: {},
    example: "rabbit completions bash > ~/.local/share/bash-completion/completions/rabbit",
    async run({ positionals }, out) {
      out.text("script", completions(positionals[0] as typeof SHELLS[number], await commands()));
      return 0;
    },
  });
}

/** The completion script for a shell, without a final newline. */
export function completions(shell: typeof SHELLS[number], commands: readonly Command[]): string {
  return { bash, zsh, fish }[shell](commands);
}

/** A flag, or an argument with an alias, and its name. */
type Named = Flag & { readonly name: string };

function valuedOf({ flags, positionals }: Command): Named[] {
  return [
    ...positionals.flatMap(({ alias, type, help }) => alias === undefined ? [] : [{ name: alias, type, help }]),
    ...Object.entries(flags).map(([name, flag]) => ({ name, ...flag })),
  ];
}

function flagsOf(command: Command): Named[] {
  return [...valuedOf(command), ...Object.entries(COMMON).map(([name, flag]) => ({ name, ...flag }))];
}

function choicesOf(type: Type): string[] {
  return type.kind === "choice" ? type.of.map(String) : [];
}

/** Whether an argument is optional. */
function mayLack({ absent }: Command, { optional }: Positional): boolean {
  return optional === true || absent !== undefined;
}

/** Quotes a text for all three shells. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

// ---------------------------------------------------------------- bash

function bash(commands: readonly Command[]): string {
  const values = commands.flatMap((command) =>
    valuedOf(command).flatMap(({ name, type }) =>
      type === undefined ? [] : [`    ${command.name}:--${name}) ${bashValue(type)}return ;;`]
    )
  );
  const rest = commands.flatMap((command) => {
    const words = flagsOf(command).map(({ name }) => `--${name}`);
    const [first] = command.positionals;
    return [
      `    ${command.name}:-*) _rabbit_words ${quoted(words.join(" "))} ;;`,
      ...(first === undefined ? [] : [`    ${command.name}:*) ${bashValue(first.type)};;`]),
    ];
  });
  return `# Completion of rabbit in bash 4 or later.
_rabbit_words() {
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
}
_rabbit_paths() {
  mapfile -t COMPREPLY < <(compgen "$1" -- "$current")
  compopt -o filenames 2>/dev/null
}
_rabbit() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]} command=\${COMP_WORDS[1]}
  # bash splits --flag=value into three words.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=\${COMP_WORDS[COMP_CWORD - 2]}
  fi
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _rabbit_words ${quoted([...commands.map(({ name }) => name), ...TOP].join(" "))}
    return
  fi
  case $command:$previous in
${values.join("\n")}
  esac
  case $command:$current in
${rest.join("\n")}
  esac
}
complete -F _rabbit rabbit`;
}

function bashValue(type: Type): string {
  const choices = choicesOf(type);
  if (choices.length > 0) return `_rabbit_words ${quoted(choices.join(" "))}; `;
  return type.kind === "path" ? `_rabbit_paths ${type.of === "directory" ? "-d" : "-f"}; ` : "";
}

// ---------------------------------------------------------------- zsh

function zsh(commands: readonly Command[]): string {
  const names = commands.map(({ name, summary }) => `      ${quoted(`${name}:${summary.replaceAll(":", "\\:")}`)}`);
  const cases = commands.map((command) => {
    const specs = [
      ...flagsOf(command).map(zshFlag),
      ...command.positionals.map((positional) =>
        `${positional.many ? "*" : ""}${mayLack(command, positional) ? "::" : ":"}${positional.name}:${
          zshValue(positional.type)
        }`
      ),
    ];
    return `    ${command.name})\n      _arguments ${
      specs.map((spec) => `\\\n        ${quoted(spec)}`).join(" ")
    }\n      ;;`;
  });
  return `#compdef rabbit
# Completion of rabbit in zsh: a file _rabbit in a directory of fpath, or sourced after compinit.
_rabbit() {
  if ((CURRENT == 2)); then
    local -a commands=(
${names.join("\n")}
      ${TOP.map(quoted).join(" ")}
    )
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
${cases.join("\n")}
  esac
}
if [[ $funcstack[1] == _rabbit ]]; then _rabbit "$@"; else compdef _rabbit rabbit; fi`;
}

function zshFlag(flag: Named): string {
  const description = describe(flag).replace(/[[\]\\:]/g, "\\$&");
  if (flag.type === undefined) return `--${flag.name}[${description}]`;
  return `--${flag.name}=[${description}]:${valueOf(flag)!.replaceAll(":", "\\:")}:${zshValue(flag.type)}`;
}

function zshValue(type: Type): string {
  const choices = choicesOf(type);
  if (choices.length > 0) return `(${choices.join(" ")})`;
  return type.kind !== "path" ? " " : type.of === "directory" ? "_files -/" : "_files";
}

// ---------------------------------------------------------------- fish

function fish(commands: readonly Command[]): string {
  const lines = commands.flatMap((command) => {
    const complete = `complete -c rabbit -n '__rabbit_command ${command.name}'`;
    const [first] = command.positionals;
    return [
      `complete -c rabbit -n __rabbit_first -a ${command.name} -d ${quoted(command.summary)}`,
      ...flagsOf(command).map((flag) =>
        `${complete} -l ${flag.name}${fishValue(flag.type)} -d ${quoted(describe(flag))}`
      ),
      ...(first === undefined ? [] : [complete + fishValue(first.type).replace(" -r", "").replace(" -x", "")]),
    ];
  });
  return `# Completion of rabbit in fish.
function __rabbit_first
    test (count (commandline -opc)) -eq 1
end
function __rabbit_command
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $argv[1]
end
complete -c rabbit -f
${TOP.map((flag) => `complete -c rabbit -n __rabbit_first -l ${flag.slice(2)}`).join("\n")}
${lines.join("\n")}`;
}

function fishValue(type: Type | undefined): string {
  if (type === undefined) return "";
  const choices = choicesOf(type);
  if (choices.length > 0) return ` -x -a ${quoted(choices.join(" "))}`;
  if (type.kind !== "path") return " -x";
  return type.of === "directory" ? ` -x -a '(__fish_complete_directories)'` : " -r -F";
}
