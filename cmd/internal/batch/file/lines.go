package file

import (
	"bytes"
	"errors"
	"io"

	"github.com/paidonce/paidonce/worker/job"
)

// maxLine is the longest line that is read: no row of the contract needs more.
const maxLine = job.MaxBytes

var errLineTooLong = errors.New("line too long")

// lines cuts a stream into lines. A line that is too long is skipped and reported; the next one is read as usual.
type lines struct {
	r      io.Reader
	buffer []byte
	start  int // of what is not yet given
	end    int
	number int // of the line that was given last
	err    error
}

func newLines(r io.Reader) *lines {
	return &lines{r: r, buffer: make([]byte, 4*maxLine)}
}

// next gives one line without its end, LF or CRLF, valid until the next call; io.EOF; errLineTooLong; or the reader's own error.
func (l *lines) next() ([]byte, error) {
	searched := l.start
	for {
		if i := bytes.IndexByte(l.buffer[searched:l.end], '\n'); i >= 0 {
			line := l.buffer[l.start : searched+i]
			l.start = searched + i + 1
			return l.give(line)
		}
		searched = l.end
		if l.end-l.start > maxLine+1 {
			return nil, l.skip()
		}
		if l.err != nil {
			break
		}
		searched -= l.fill()
	}
	if !errors.Is(l.err, io.EOF) {
		return nil, l.err
	}
	if l.start == l.end {
		return nil, io.EOF
	}
	line := l.buffer[l.start:l.end]
	l.start = l.end
	return l.give(line)
}

func (l *lines) give(line []byte) ([]byte, error) {
	l.number++
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if len(line) > maxLine {
		return nil, errLineTooLong
	}
	return line, nil
}

// fill reads more, and tells by how much it has moved what was there.
func (l *lines) fill() (moved int) {
	if l.end == len(l.buffer) {
		copy(l.buffer, l.buffer[l.start:l.end])
		moved = l.start
		l.start, l.end = 0, l.end-l.start
	}
	var n int
	n, l.err = l.r.Read(l.buffer[l.end:])
	l.end += n
	return moved
}

// skip drops the rest of a line that is too long.
func (l *lines) skip() error {
	l.number++
	for {
		if i := bytes.IndexByte(l.buffer[l.start:l.end], '\n'); i >= 0 {
			l.start += i + 1
			return errLineTooLong
		}
		l.start, l.end = 0, 0
		if l.err != nil {
			if errors.Is(l.err, io.EOF) {
				return errLineTooLong
			}
			return l.err
		}
		l.fill()
	}
}
