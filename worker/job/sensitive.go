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

// Sensitive is text about a person: a name, an account, a reference. It prints masked under every verb of fmt, in JSON and
// as text, so zerolog, slog and errors mask it too. Reveal gives the text. An empty one prints masked as well.
//
// Two ways around it exist in the language, and neither belongs in code that prints: conversion to string, and fmt
// printing a struct that holds it in an unexported field.
type Sensitive string

// Reveal returns the text, for the fingerprint, the partner and the stored payload.
func (s Sensitive) Reveal() string { return string(s) }

// String is masked.
func (Sensitive) String() string { return mask }

// Format is masked under every verb and flag.
func (Sensitive) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, mask) }

// MarshalText is masked; encoders use it for text and for the keys of maps.
func (Sensitive) MarshalText() ([]byte, error) { return []byte(mask), nil }

// MarshalJSON is masked.
func (Sensitive) MarshalJSON() ([]byte, error) { return []byte(`"` + mask + `"`), nil }

// MarshalJSONTo is masked.
func (Sensitive) MarshalJSONTo(e *jsontext.Encoder) error { return e.WriteToken(jsontext.String(mask)) }

// LogValue is masked.
func (Sensitive) LogValue() slog.Value { return slog.StringValue(mask) }
