package file

import (
	"bufio"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/paidonce/paidonce/worker/job"
)

// maxToken is the most that is read for one tag or one value.
const maxToken = job.MaxBytes

var (
	errTokenTooLong = errors.New("element too long")
	errEncoding     = errors.New("encoding other than UTF-8")
	errLatin1       = errors.New("encoding Latin-1")
)

// tokens reads XML without what makes XML dangerous: no document type and so no entities but the five, no other encodings, no value without limit.
type tokens struct {
	decoder *xml.Decoder
	in      *bounded
	begun   bool // the first token was read
}

// bounded gives up when one token does not end. The decoder itself would gather a value of any length.
type bounded struct {
	r    *bufio.Reader
	left int
	err  error // of the reader itself; none of XML
}

func (b *bounded) Read([]byte) (int, error) { panic("file: the XML decoder reads bytes") }

func (b *bounded) ReadByte() (byte, error) {
	if b.left--; b.left < 0 {
		return 0, errTokenTooLong
	}
	c, err := b.r.ReadByte()
	if err != nil {
		b.err = err
	}
	return c, err
}

func newTokens(r io.Reader) *tokens {
	t := &tokens{in: &bounded{r: bufio.NewReaderSize(r, 64<<10)}}
	t.decoder = xml.NewDecoder(t.in)
	t.decoder.CharsetReader = func(label string, _ io.Reader) (io.Reader, error) {
		switch strings.ToLower(label) {
		case "iso-8859-1", "iso-8859-15", "latin1", "windows-1252":
			return nil, errLatin1
		}
		return nil, errEncoding
	}
	return t
}

// begin judges the first bytes. The error is a *Fault or the reader's own.
func (t *tokens) begin() error {
	first, err := t.in.r.Peek(4)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case len(first) == 0:
		return endFault(1, "empty", "there is nothing in the file", "was it exported completely?")
	}
	if len(first) >= 3 && string(first[:3]) == "\xef\xbb\xbf" {
		_, _ = t.in.r.Discard(3)
		first, _ = t.in.r.Peek(4)
	}
	if len(first) >= 3 && string(first[:3]) == "\xef\xbb\xbf" {
		return endFault(1, "bom", "begins with two byte order marks", "remove them: two programs have each put one in front")
	}
	if _, fault := checkStart(first); fault != nil && fault.Code != "invalid_utf8" && fault.Code != "encoding_latin1" {
		return fault // four bytes may end in the middle of a character: the decoder judges that
	}
	return nil
}

// next gives a start, an end, text or a comment; io.EOF; a *Fault with End; or the reader's own error.
func (t *tokens) next() (xml.Token, error) {
	t.in.left = maxToken
	token, err := t.decoder.Token()
	if err != nil {
		return nil, t.fault(err)
	}
	first := !t.begun
	t.begun = true
	switch token := token.(type) {
	case xml.Directive:
		return nil, t.end("xml_doctype", "has a document type or another declaration", "send the plain message: nothing is declared in it")
	case xml.ProcInst:
		if token.Target != "xml" || !first {
			return nil, t.end("xml_instruction", "has a processing instruction", "send the plain message")
		}
		return t.next()
	}
	return token, nil
}

func (t *tokens) fault(err error) error {
	var syntax *xml.SyntaxError
	switch {
	case t.in.err != nil && !errors.Is(t.in.err, io.EOF):
		return t.in.err
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, errTokenTooLong):
		return t.end("too_large", "a value or a tag has more than 65536 bytes", "is an end tag missing?")
	case errors.Is(err, errLatin1):
		return t.end("encoding_latin1", "declares Latin-1 or Windows-1252 as its encoding", "write the file in UTF-8, and declare it so")
	case errors.Is(err, errEncoding):
		return t.end("encoding_declared", "declares another encoding than UTF-8", "write the file in UTF-8, and declare it so")
	case errors.As(err, &syntax):
		if syntax.Msg == "unexpected EOF" {
			return t.end("truncated", "ends in the middle of the document", "it was cut off: fetch it again")
		}
		if syntax.Msg == "invalid UTF-8" {
			return t.end("invalid_utf8", "is no UTF-8", "write the file in UTF-8; Latin-1 is not taken")
		}
	}
	return t.end("xml_syntax", "is not well-formed XML here", "the program that wrote the file has a fault; do not mend it by hand")
}

func (t *tokens) end(code, message, hint string) *Fault {
	return endFault(t.line(), code, message, hint)
}

func (t *tokens) line() int {
	line, _ := t.decoder.InputPos()
	return line
}

func itoa(n int) string { return strconv.Itoa(n) }
