package file

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// fuzzFile checks what must be true of every file whatever.
func fuzzFile(t *testing.T, text []byte, format Format, opt Options) {
	var rows []Row
	report, err := Check(context.Background(), bytes.NewReader(text), format, opt, CheckOptions{MaxFaults: 1 << 20, Each: func(row *Row) error {
		rows = append(rows, *row)
		return nil
	}})
	if err != nil {
		t.Fatalf("an error that is no fault: %v", err)
	}
	r, err := Open(bytes.NewReader(text), format, opt)
	if err != nil {
		t.Fatal(err)
	}
	good, bad, faults := 0, 0, 0
	for {
		row, err := r.Next()
		var fault *Fault
		switch {
		case err == nil:
			if good == len(rows) || row.Content != rows[good].Content || row.Line != rows[good].Line || row.N != rows[good].N {
				t.Fatalf("row %d is not the one that was checked", row.N)
			}
			survives(t, &row)
			good++
		case errors.As(err, &fault):
			if fault.Code == "" || fault.Message == "" || fault.Hint == "" || fault.Line == 0 {
				t.Fatalf("no whole fault: %#v", fault)
			}
			if faults++; fault.Row != 0 {
				bad++
			}
		case errors.Is(err, io.EOF) != report.Complete:
			t.Fatalf("err %v, complete %v", err, report.Complete)
		case good != len(rows) || good+bad != report.Rows || bad+report.FaultsByCode[CodeRowRefTwice] != report.Bad || faults > report.FaultCount:
			t.Fatalf("%d good, %d bad, %d faults; the report has %d rows, %d bad, %d faults", good, bad, faults, report.Rows, report.Bad, report.FaultCount)
		default:
			return
		}
	}
}

func addSamples(f *testing.F, suffix string) {
	for _, name := range append(sampleNames(f, "good"), sampleNames(f, "bad")...) {
		if strings.HasSuffix(name, suffix) {
			f.Add(readSample(f, name))
		}
	}
}

func FuzzCSV(f *testing.F) {
	addSamples(f, ".csv")
	f.Fuzz(func(t *testing.T, text []byte) {
		opt := plain()
		fuzzFile(t, text, FormatCSV, opt)
		opt.Dialect = Dialect{Delimiter: ';', Decimal: ',', Thousands: '.', Trailer: "ENDE"}
		fuzzFile(t, text, FormatCSV, opt)
	})
}

func FuzzNDJSON(f *testing.F) {
	addSamples(f, ".ndjson")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzFile(t, text, FormatNDJSON, plain()) })
}

func FuzzPain(f *testing.F) {
	addSamples(f, ".xml")
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzFile(t, text, FormatPain00103, plain())
		opt := plain()
		opt.Ignore, opt.Charset = Droppable(), CharsetSEPA
		fuzzFile(t, text, FormatPain00109, opt)
	})
}
