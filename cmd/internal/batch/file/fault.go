package file

import (
	"strconv"
	"strings"
)

// Error says place, code and message, as every other error of a place in a file.
func (f *Fault) Error() string {
	var b strings.Builder
	if f.Line > 0 {
		b.WriteString("line " + strconv.Itoa(f.Line) + ": ")
	}
	if f.Column != "" {
		b.WriteString(f.Column + ": ")
	}
	b.WriteString(f.Code + ": " + f.Message)
	return b.String()
}
