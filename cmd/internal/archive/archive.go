// Package archive keeps payloads in a file before a purge deletes them: one JSON object per line, compressed.
//
// What may be relied on: when Write has returned, its payloads are on disk, and the file up to there can be read by zcat or zstdcat whatever
// happens next. A crash may leave a torn end, of payloads that were not deleted then; the next purge writes them again, into a file of its own.
// A file that exists is never written to. It holds beneficiaries: only its owner may read it.
package archive

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"

	"github.com/paidonce/paidonce/ledger"
)

// ErrName: the name of an archive says how it is compressed.
var ErrName = errors.New("an archive is named .jsonl.gz or .jsonl.zst")

// Line is one payload.
type Line struct {
	Key         string    `json:"key"`
	Source      string    `json:"source"`
	Route       string    `json:"route"`
	State       string    `json:"state"`
	OutcomeAt   time.Time `json:"outcome_at"`
	Fingerprint string    `json:"fingerprint"` // version:hex
	PublishedAt time.Time `json:"published_at,omitzero"`
	TraceParent string    `json:"traceparent,omitzero"`
	Body        []byte    `json:"body"` // base64: the bytes as they arrived
}

// File is an archive being written.
type File struct {
	file     *os.File
	compress func([]byte) ([]byte, error)
	written  int64
}

// Named says whether a path is that of an archive.
func Named(path string) error {
	if strings.HasSuffix(path, ".jsonl.gz") || strings.HasSuffix(path, ".jsonl.zst") {
		return nil
	}
	return ErrName
}

// Create makes a new file, and its name durable.
func Create(path string) (*File, error) {
	if err := Named(path); err != nil {
		return nil, err
	}
	compress := gzipped
	if strings.HasSuffix(path, ".zst") {
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("make the archive: %w", err)
		}
		compress = func(text []byte) ([]byte, error) { return encoder.EncodeAll(text, nil), nil }
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the archive: %w", err)
	}
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &File{file: file, compress: compress}, nil
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err == nil {
		err = errors.Join(directory.Sync(), directory.Close())
	}
	if err != nil {
		return fmt.Errorf("make the archive's name durable: %w", err)
	}
	return nil
}

func gzipped(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(text)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

// Write appends payloads as one piece that can be read by itself, and returns when it is on disk.
func (f *File) Write(payloads []ledger.PurgedPayload) error {
	var text bytes.Buffer
	for i := range payloads {
		p := &payloads[i]
		line := Line{
			Key: p.Key.String(), Source: p.Source, Route: p.Route, State: string(p.State), OutcomeAt: p.OutcomeAt.UTC(),
			Fingerprint: strconv.Itoa(int(p.Fingerprint.Version)) + ":" + hex.EncodeToString(p.Fingerprint.Sum[:]), PublishedAt: p.PublishedAt.UTC(),
			TraceParent: p.TraceParent, Body: p.Body,
		}
		if err := json.MarshalWrite(&text, line); err != nil {
			return fmt.Errorf("render a payload: %w", err)
		}
		text.WriteByte('\n')
	}
	piece, err := f.compress(text.Bytes())
	if err == nil {
		_, err = f.file.Write(piece)
	}
	if err == nil {
		err = f.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	f.written += int64(len(payloads))
	return nil
}

// Close ends the file; one without a payload is removed.
func (f *File) Close() error {
	err := f.file.Close()
	if f.written == 0 {
		err = errors.Join(err, os.Remove(f.file.Name()))
	}
	return err
}
