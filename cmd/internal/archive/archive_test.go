package archive_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/paidonce/paidonce/cmd/internal/archive"
	"github.com/paidonce/paidonce/ledger"
)

const (
	firstLine = `{"key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11","source":"wallet","route":"gbp-fps","state":"authorized","outcome_at":"2026-11-30T12:00:00Z",` +
		`"fingerprint":"1:0100000000000000000000000000000000000000000000000000000000000000","published_at":"2026-11-30T11:59:59Z","body":"eyJ2IjoxfQ=="}`
	secondLine = `{"key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a12","source":"wallet","route":"gbp-fps","state":"rejected","outcome_at":"2026-11-30T12:00:00Z",` +
		`"fingerprint":"1:0200000000000000000000000000000000000000000000000000000000000000","body":"/w=="}`
)

func payloads() []ledger.PurgedPayload {
	at := time.Date(2026, 11, 30, 13, 0, 0, 0, time.FixedZone("", 3600))
	return []ledger.PurgedPayload{
		{Key: uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"), Source: "wallet", Route: "gbp-fps", State: ledger.StateAuthorized, OutcomeAt: at,
			Fingerprint: ledger.Fingerprint{Version: 1, Sum: [32]byte{1}}, PublishedAt: at.Add(-time.Second), Body: []byte(`{"v":1}`)},
		{Key: uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a12"), Source: "wallet", Route: "gbp-fps", State: ledger.StateRejected, OutcomeAt: at,
			Fingerprint: ledger.Fingerprint{Version: 1, Sum: [32]byte{2}}, Body: []byte{0xff}},
	}
}

// read decompresses what can be read, as zcat and zstdcat do.
func read(t *testing.T, path string) (string, error) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r io.Reader
	if strings.HasSuffix(path, ".gz") {
		r, err = gzip.NewReader(bytes.NewReader(raw))
	} else {
		r, err = zstd.NewReader(bytes.NewReader(raw))
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	return string(text), err
}

func TestArchive_EachPieceCanBeReadAndATornEndLosesOnlyItself(t *testing.T) {
	for _, ending := range []string{".jsonl.gz", ".jsonl.zst"} {
		path := filepath.Join(t.TempDir(), "payloads"+ending)
		f, err := archive.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		all := payloads()
		if err := errors.Join(f.Write(all[:1]), f.Write(all[1:]), f.Close()); err != nil {
			t.Fatal(err)
		}
		if text, err := read(t, path); err != nil || text != firstLine+"\n"+secondLine+"\n" {
			t.Errorf("%s: %v:\n%s", ending, err, text)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, err %v; want only its owner to read it", ending, info.Mode(), err)
		}
		if err := os.Truncate(path, info.Size()-3); err != nil {
			t.Fatal(err)
		}
		if text, err := read(t, path); err == nil || !strings.HasPrefix(text, firstLine+"\n") {
			t.Errorf("%s torn: %v:\n%s", ending, err, text)
		}
		if _, err := archive.Create(path); !errors.Is(err, os.ErrExist) {
			t.Errorf("%s: a file that exists: %v", ending, err)
		}
	}
}

func TestArchive_NameAndNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := archive.Create(filepath.Join(dir, "payloads.json")); !errors.Is(err, archive.ErrName) {
		t.Errorf("another name: %v", err)
	}
	path := filepath.Join(dir, "nothing.jsonl.gz")
	f, err := archive.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an archive of nothing stays: %v", err)
	}
}
