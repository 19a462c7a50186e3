package bankclient_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient/reference"
)

func benchBank(b *testing.B) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", jsonType)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, agreeing)
	}))
	b.Cleanup(s.Close)
	return s.URL
}

// BenchmarkSend is one whole call, server included; compare with BenchmarkPlainClient, the least that net/http offers.
func BenchmarkSend(b *testing.B) {
	cfg := config(benchBank(b))
	cfg.MaxInFlight = 64
	p := open(b, echoing(cfg), reference.New())
	pr := prepare(b, p)
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if r := p.Send(context.Background(), pr); r.Verdict != authorized {
				b.Errorf("%s", r.Evidence.JSON())
				return
			}
		}
	})
}

func BenchmarkPlainClient(b *testing.B) {
	url := benchBank(b) + "/v1/transfers"
	client := &http.Client{Transport: &http.Transport{MaxIdleConns: 64, MaxIdleConnsPerHost: 64}}
	b.Cleanup(client.CloseIdleConnections)
	body := prepare(b, partnerAt(b, url)).Body
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			req.Header.Set("Content-Type", jsonType)
			req.Header.Set("Authorization", "Bearer s3cret")
			req.Header.Set("Idempotency-Key", opPartner)
			resp, err := client.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	})
}

func BenchmarkPrepare(b *testing.B) {
	p := partnerAt(b, "http://127.0.0.1:1")
	key := uuid.MustParse(opKey)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Prepare(key, 0, withdrawal()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEvidenceJSON(b *testing.B) {
	e := sendTo(b, say(b, reply(201, jsonType, agreeing))).Evidence
	b.ReportAllocs()
	for b.Loop() {
		_ = e.JSON()
	}
}

func BenchmarkGate(b *testing.B) {
	g := partnerAt(b, "http://127.0.0.1:1").Gate()
	b.ReportAllocs()
	for b.Loop() {
		n, _ := g.Acquire(context.Background(), 1)
		g.Report(good)
		g.Release(n)
	}
}
