package job

import (
	_ "embed"
	"slices"
)

//go:embed job.schema.json
var schema []byte

// Schema is the published JSON Schema (2020-12) of a payload. Decode accepts nothing that it refuses. What it cannot
// express, and only Decode refuses:
//
//   - faults of the bytes: size, BOM, NUL, UTF-8, trailing data, duplicate names, names that differ only by case from another
//     (one that differs from a name of the contract is an unknown name to the schema), and 1.0 for 1 as version
//   - whether a currency is known and how many digits it has; whether the amount fits 64 bits
//   - check digits and country lengths of IBANs, check digits and prefixes of routing numbers, check digits of tax numbers
//   - whether a date is in the calendar (the schema names the format, which a validator may ignore) and, as UTC, in the years
//     2000 to 9999; the order of not_before and not_after
func Schema() []byte { return slices.Clone(schema) }
