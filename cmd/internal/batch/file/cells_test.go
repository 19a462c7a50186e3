package file

import (
	"encoding/csv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestJ15_CellsForPeople: what a spreadsheet would take for a formula is text.
func TestJ15_CellsForPeople(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"A N Example":            "A N Example",
		"=1+1":                   "'=1+1",
		"=cmd|' /C calc'!A0":     "'=cmd|' /C calc'!A0",
		"+44 20":                 "'+44 20",
		"-5":                     "'-5",
		"@SUM(A1)":               "'@SUM(A1)",
		"\t=1":                   "'\t=1",
		"\r=1":                   "'\r=1",
		"\n=1":                   "'\n=1",
		" =1":                    "' =1",
		"\u00a0=1":               "'\u00a0=1",
		"\ufeff=1":               "'\ufeff=1",
		"\u200b=1":               "'\u200b=1",
		"＝1":                     "'＝1",
		"＋1":                     "'＋1",
		"－1":                     "'－1",
		"＠1":                     "'＠1",
		"\u22121":                "'\u22121",
		"%0A":                    "'%0A",
		"|x":                     "'|x",
		"a=1":                    "a=1",
		"'=1":                    "'=1",
		"O'Example":              "O'Example",
		"GB33BUKB20201555555555": "GB33BUKB20201555555555",
		"   ":                    "   ",
	} {
		if got := PeopleCell(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestJ15_CellsInQuotes are read back as they were, by another reader, with any delimiter.
func TestJ15_CellsInQuotes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells := rapid.SliceOfN(rapid.StringOf(rapid.SampledFrom([]rune("ab\",;\t\n='ë "))), 1, 5).Draw(t, "cells")
		delimiter := rapid.SampledFrom([]rune(",;\t")).Draw(t, "delimiter")
		var b []byte
		for i, cell := range cells {
			if i > 0 {
				b = append(b, string(delimiter)...)
			}
			b = QuotedCell(b, cell)
		}
		r := csv.NewReader(strings.NewReader(string(b) + "\n"))
		r.Comma = delimiter
		got, err := r.Read()
		if err != nil || strings.Join(got, "\x00") != strings.Join(cells, "\x00") {
			t.Fatalf("%q, %v, want %q", got, err, cells)
		}
	})
}
