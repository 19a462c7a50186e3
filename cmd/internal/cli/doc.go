// Package cli is what every paidonce command shares: exit codes, output formats, arguments.
//
// What may be relied on: data goes to standard output and nothing else does; the exit code says what a program needs to
// decide (Codes lists them); JSON member names and CSV columns are stable; a table for people escapes control characters,
// so that no stored text can steer a terminal, and is coloured only on a terminal without NO_COLOR.
package cli
