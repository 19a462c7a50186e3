package job

import (
	"bytes"
	"maps"
	"testing"
)

func FuzzDecode(f *testing.F) {
	schema := compiledSchema(f)
	for _, doc := range goodDocuments() {
		f.Add([]byte(doc))
	}
	for _, d := range badDocuments() {
		if len(d.doc) < 4096 {
			f.Add([]byte(d.doc))
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		before := bytes.Clone(payload)
		j, err := Decode("wallet", "gbp-fps", payload)
		if !bytes.Equal(payload, before) {
			t.Fatal("Decode changed the payload")
		}
		if err != nil {
			wantWholeFault(t, err)
			return
		}
		if err := checkSchema(schema, payload); err != nil {
			t.Fatalf("accepted, but not by the schema: %v", err)
		}
		out, err := Encode(j)
		if err != nil {
			t.Fatalf("Encode: %v", err)
		}
		back, err := Decode("wallet", "gbp-fps", out)
		if err != nil {
			t.Fatalf("Decode what Encode wrote: %v", err)
		}
		if back.Fingerprint() != j.Fingerprint() || !maps.Equal(back.Metadata, j.Metadata) {
			t.Fatalf("another job: %s", out)
		}
		again, err := Encode(back)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("not canonical: %s and %s, %v", out, again, err)
		}
	})
}
