package job

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/go-json-experiment/json/jsontext"
)

// mask is what every Sensitive prints. It has no length and no part of the text: four last digits and a name are enough
// to find a person.
const mask = "[masked]"

// Sensitive is text about a person: a name, an account, a reference. It prints masked under the verbs of fmt, in JSON and as
// text, so zerolog, slog and errors mask it too. An empty one prints masked as well. Reveal gives the text; whoever stores or
// sends it must ask for it, because database drivers use String as well.
//
// Some ways around the mask are in the language and its library, and belong into no code that prints: conversion to string;
// fmt printing a struct that holds it in an unexported field, or behind a pointer inside of another value under a verb that
// does not fit pointers (give such a struct its own Format, as Beneficiary has); the verbs %p and %w, which go vet refuses for
// a text (fmt then prints the operand without its methods); encoding/json printing a map that has it as keys.
type Sensitive string

// Reveal returns the text, for the fingerprint, the partner and the stored payload.
func (s Sensitive) Reveal() string { return string(s) }

// String is masked.
func (Sensitive) String() string { return mask }

// Format is masked under every verb and flag.
func (Sensitive) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, mask) }

// MarshalText is masked.
func (Sensitive) MarshalText() ([]byte, error) { return []byte(mask), nil }

// MarshalJSON is masked.
func (Sensitive) MarshalJSON() ([]byte, error) { return []byte(`"` + mask + `"`), nil }

// MarshalJSONTo is masked.
func (Sensitive) MarshalJSONTo(e *jsontext.Encoder) error { return e.WriteToken(jsontext.String(mask)) }

// LogValue is masked.
func (Sensitive) LogValue() slog.Value { return slog.StringValue(mask) }
