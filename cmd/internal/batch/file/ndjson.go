package file

import (
	"bytes"
	"errors"
	"io"

	"github.com/paidonce/paidonce/worker/job"
)

// ndjsonSource reads one document per line.
type ndjsonSource struct {
	lines *lines
	opt   Options
	begun bool
}

func newNDJSON(r io.Reader, opt Options) *ndjsonSource {
	return &ndjsonSource{lines: newLines(r), opt: opt}
}

func (s *ndjsonSource) trailer() *Totals { return nil }

func (s *ndjsonSource) refColumn() (string, int) { return "/row_ref", 0 }

func (s *ndjsonSource) next() (Row, error) {
	for {
		line, err := s.lines.next()
		number := s.lines.number
		switch {
		case errors.Is(err, errLineTooLong):
			s.begun = true
			return Row{}, &Fault{Line: number, Row: 1, Code: job.CodeTooLarge, Message: "the line has more than 65536 bytes",
				Hint: "each line holds one payment; is a line end missing?"}
		case err != nil:
			return Row{}, err
		}
		if !s.begun {
			s.begun = true
			var fault *Fault
			if line, fault = checkStart(line); fault != nil {
				return Row{}, fault
			}
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		j, own, err := job.DecodeRow(s.opt.Source, s.opt.Route, line)
		if err != nil {
			return Row{}, s.fault(err, line)
		}
		return Row{Line: number, Job: j, RowRef: own.Ref, ownRoute: own.Route}, nil
	}
}

func (s *ndjsonSource) fault(err error, line []byte) error {
	var fault *job.Fault
	if !errors.As(err, &fault) {
		return err
	}
	out := &Fault{Line: s.lines.number, Row: 1, Column: fault.Path, Code: fault.Code, Message: fault.Detail, Hint: hintOf(fault.Code, fault.Path)}
	if fault.Code == job.CodeInvalidUTF8 && fault.Path == "" {
		out.Code, out.Message, out.Hint = encodingFault(line)
	}
	return out
}
