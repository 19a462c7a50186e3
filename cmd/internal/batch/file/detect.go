package file

import (
	"bytes"
	"errors"
	"path"
	"strings"
)

// DetectBytes is how much of a file Detect wants to see.
const DetectBytes = 4096

// ErrUnknownFormat means that nothing in the first bytes or the name of a file says what it is. Name the format then.
var ErrUnknownFormat = errors.New("the format of the file cannot be told from its begin and its name: name it, it is one of " +
	string(FormatCSV) + ", " + string(FormatNDJSON) + ", " + string(FormatPain00103) + ", " + string(FormatPain00109))

// Detect tells the format from the first bytes of a file and its name. It is a proposal: Open refuses a file that has another format than was named.
// What is no text at all (a workbook, an archive) or UTF-16 is proposed as CSV: reading it says so with its word.
func Detect(first []byte, name string) (Format, error) {
	begin := bytes.TrimLeft(bytes.TrimPrefix(first, []byte("\xef\xbb\xbf")), " \t\r\n")
	_, fault := checkStart(first[:min(len(first), 4)])
	switch {
	case fault != nil && fault.Code != "encoding_latin1" && fault.Code != "invalid_utf8": // four bytes may end in the middle of a character
		return FormatCSV, nil
	case bytes.HasPrefix(begin, []byte("<")):
		for _, format := range []Format{FormatPain00103, FormatPain00109} {
			if bytes.Contains(begin, []byte(painNamespace+string(format)+`"`)) || bytes.Contains(begin, []byte(painNamespace+string(format)+`'`)) {
				return format, nil
			}
		}
		return "", ErrUnknownFormat
	case bytes.HasPrefix(begin, []byte("{")):
		return FormatNDJSON, nil
	}
	switch strings.ToLower(path.Ext(name)) {
	case ".csv", ".tsv", ".txt":
		return FormatCSV, nil
	case ".ndjson", ".jsonl":
		return FormatNDJSON, nil
	}
	line, _, _ := bytes.Cut(begin, []byte("\n"))
	for _, cell := range strings.FieldsFunc(string(line), func(r rune) bool { return strings.ContainsRune(",;|\t\"\r", r) }) {
		if columnOf(cell) != noColumn {
			return FormatCSV, nil
		}
	}
	return "", ErrUnknownFormat
}
