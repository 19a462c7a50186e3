package file

import (
	"bytes"
	"unicode/utf8"
)

// checkStart judges the first bytes of a file, and strips one byte order mark of UTF-8. Only one: a second is a character of the first cell.
func checkStart(first []byte) ([]byte, *Fault) {
	const hintExport = "export it as CSV in UTF-8"
	for _, magic := range []struct{ bytes, code, message, hint string }{
		{"\xff\xfe", "encoding_utf16", "is UTF-16", "save the file as UTF-8"},
		{"\xfe\xff", "encoding_utf16", "is UTF-16", "save the file as UTF-8"},
		{"\x00\x00\xfe\xff", "encoding_utf32", "is UTF-32", "save the file as UTF-8"},
		{"PK\x03\x04", "workbook", "is a workbook of a spreadsheet (or another ZIP archive), no text", hintExport},
		{"\xd0\xcf\x11\xe0", "workbook", "is a workbook of an old spreadsheet, no text", hintExport},
		{"\x1f\x8b", "compressed", "is compressed", "unpack it first"},
		{"%PDF", "no_text", "is a PDF document", hintExport},
	} {
		if bytes.HasPrefix(first, []byte(magic.bytes)) {
			return nil, endFault(1, magic.code, magic.message, magic.hint)
		}
	}
	if bytes.IndexByte(first, 0) >= 0 {
		return nil, endFault(1, "encoding_utf16", "has NUL bytes, as UTF-16 without a byte order mark has", "save the file as UTF-8")
	}
	first = bytes.TrimPrefix(first, []byte("\xef\xbb\xbf"))
	if bytes.HasPrefix(first, []byte("\xef\xbb\xbf")) {
		return nil, endFault(1, "bom", "begins with two byte order marks", "remove them: two programs have each put one in front")
	}
	if !utf8.Valid(first) {
		code, message, hint := encodingFault(first)
		return nil, endFault(1, code, message, hint)
	}
	return first, nil
}

// encodingFault names the encoding of bytes that are no UTF-8: Latin-1 (or Windows-1252, its superset) has single bytes above 0x7f where UTF-8 has
// sequences.
func encodingFault(line []byte) (code, message, hint string) {
	high, sequences := 0, 0
	for i := 0; i < len(line); {
		r, size := utf8.DecodeRune(line[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			high++
		case size > 1:
			sequences++
		}
		i += size
	}
	if high > 0 && sequences == 0 {
		return "encoding_latin1", "is no UTF-8; by its bytes it is Latin-1 or Windows-1252", "save the file as UTF-8 and compare the names"
	}
	return "invalid_utf8", "is no UTF-8", "the line mixes encodings or is cut in the middle of a character: export it again"
}
