package ledger

import (
	"encoding/binary"
	"time"
)

// copyWriter makes the binary form of COPY. It is used over and over, one table after the other.
type copyWriter struct{ b []byte }

// copyHeader is the signature, no flags, no extension.
const copyHeader = "PGCOPY\n\377\r\n\000\000\000\000\000\000\000\000\000"

// postgresEpoch is where Postgres counts its microseconds from, in those since 1970.
const postgresEpoch = 946684800_000_000

func (w *copyWriter) begin() { w.b = append(w.b[:0], copyHeader...) }
func (w *copyWriter) end()   { w.b = binary.BigEndian.AppendUint16(w.b, 0xffff) }

func (w *copyWriter) row(columns uint16) { w.b = binary.BigEndian.AppendUint16(w.b, columns) }
func (w *copyWriter) null()              { w.b = binary.BigEndian.AppendUint32(w.b, 0xffffffff) }

func (w *copyWriter) length(n int) { w.b = binary.BigEndian.AppendUint32(w.b, uint32(n)) } //nolint:gosec // a job has 64 KiB at most

func (w *copyWriter) int2(n int16) {
	w.length(2)
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(n)) //nolint:gosec // the bits, as they are
}

func (w *copyWriter) int4(n int32) {
	w.length(4)
	w.b = binary.BigEndian.AppendUint32(w.b, uint32(n)) //nolint:gosec // the bits, as they are
}

func (w *copyWriter) int8(n int64) {
	w.length(8)
	w.b = binary.BigEndian.AppendUint64(w.b, uint64(n)) //nolint:gosec // the bits, as they are
}

func (w *copyWriter) bytes(value []byte) {
	w.length(len(value))
	w.b = append(w.b, value...)
}

func (w *copyWriter) text(value string) {
	w.length(len(value))
	w.b = append(w.b, value...)
}

// textOrNull writes NULL for "".
func (w *copyWriter) textOrNull(value string) {
	if value == "" {
		w.null()
		return
	}
	w.text(value)
}

// time writes NULL for the zero time.
func (w *copyWriter) time(at time.Time) {
	if at.IsZero() {
		w.null()
		return
	}
	w.int8(at.UnixMicro() - postgresEpoch)
}
