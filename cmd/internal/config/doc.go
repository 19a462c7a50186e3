// Package config reads the settings of every paidonce process.
//
// A setting is taken from the first place that has it: flag, environment, YAML file, default. One list of settings
// (settings.go) drives the YAML decoder, the environment, the flags, the defaults and the reference table, so none of
// them can disagree with another.
//
// What may be relied on:
//
//   - The file is read strictly: an unknown, doubled or empty key is a problem with its line, and says what was
//     probably meant.
//   - Load reports every problem at once, as Problems, each with the place where the setting came from.
//   - Secrets are read from files or standard input only; a flag that carries one is refused. Secret and URL print masked.
//
// What may not: Load does not connect to anything, and does not read the secret files. ReadSecret does, Config.CheckFiles
// tries all of them, and `paidonce doctor` asks the services.
package config
