package job

import "testing"

func BenchmarkDecode(b *testing.B) {
	payload := []byte(contractJob)
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if _, err := Decode("wallet", "gbp-fps", payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFingerprint(b *testing.B) {
	j := mustDecode(b, contractJob)
	b.ReportAllocs()
	for b.Loop() {
		if j.Fingerprint().Version != 1 {
			b.Fatal("another version")
		}
	}
}

func BenchmarkFingerprintComposed(b *testing.B) {
	j := mustDecode(b, with("A N Example", "Zoe\u0308"))
	b.ReportAllocs()
	for b.Loop() {
		if j.Fingerprint().Version != 1 {
			b.Fatal("another version")
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	j := mustDecode(b, contractJob)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Encode(j); err != nil {
			b.Fatal(err)
		}
	}
}
