package file

import "strings"

// PeopleCell makes a text harmless for people who open an export in a spreadsheet: one that would be taken for a formula begins with an apostrophe
// then. It is for text only, and for exports for people only: a machine gets the text as it is. Write the cell in quotes (QuotedCell does), or a
// spreadsheet with another delimiter splits it, and what comes behind begins a cell of its own.
func PeopleCell(text string) string {
	trimmed := strings.TrimLeftFunc(text, func(r rune) bool { return isSpace(r) || r == '\r' || r == '\n' || r == '\ufeff' })
	if trimmed != text && trimmed == "" {
		return text
	}
	if first := firstRune(trimmed); first == '=' || first == '+' || first == '-' || first == '@' || first == '|' || first == '%' ||
		first == '＝' || first == '＋' || first == '－' || first == '＠' || first == '\u2212' || strings.IndexAny(text, "\t\r\n") == 0 {
		return "'" + text
	}
	return text
}

func firstRune(text string) rune {
	for _, r := range text {
		return r
	}
	return 0
}

// QuotedCell appends a cell of CSV in quotes.
func QuotedCell(b []byte, text string) []byte {
	b = append(b, '"')
	for {
		before, after, found := strings.Cut(text, `"`)
		b = append(b, before...)
		if !found {
			return append(b, '"')
		}
		b = append(b, `""`...)
		text = after
	}
}
