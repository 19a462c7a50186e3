package job

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
)

const (
	requestKey  = "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"
	jobHead     = "{\"v\":1,\n \"key\":\"" + requestKey + "\",\n"
	requestHead = `{"route":"gbp-fps",`
)

// asRequest turns a job document that begins as the contract's example into the request that asks for the same.
func asRequest(doc string) (string, bool) {
	at := strings.Index(doc, jobHead)
	if at < 0 || strings.Count(doc, `"v"`)+strings.Count(doc, `"key"`) != 2 {
		return "", false
	}
	return doc[:at] + requestHead + doc[at+len(jobHead):], true
}

func decodeRequest(body string) (Job, error) {
	return DecodeRequest("wallet", uuid.MustParse(requestKey), []byte(body))
}

// TestB14_ARequestAndItsJobHaveOneFingerprint: what the gateway records is what a delivery of the recorded payload is judged by.
func TestB14_ARequestAndItsJobHaveOneFingerprint(t *testing.T) {
	n := 0
	for name, doc := range goodDocuments() {
		body, ok := asRequest(doc)
		if !ok {
			continue
		}
		n++
		j, err := decodeRequest(body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		payload, err := Encode(j)
		if err != nil {
			t.Errorf("%s: encode: %v", name, err)
			continue
		}
		delivered, err := Decode("wallet", "gbp-fps", payload)
		if err != nil || delivered.Fingerprint() != j.Fingerprint() || mustDecode(t, doc).Fingerprint() != j.Fingerprint() {
			t.Errorf("%s: another fingerprint, err %v", name, err)
		}
	}
	if n < 30 {
		t.Errorf("only %d documents were tried", n)
	}
}

// TestH_ARequestIsRefusedForWhatAJobIsRefusedFor, with the same code at the same place.
func TestH_ARequestIsRefusedForWhatAJobIsRefusedFor(t *testing.T) {
	n := 0
	for name, d := range badDocuments() {
		body, ok := asRequest(d.doc)
		if !ok || strings.HasPrefix(name, "route in the body") || d.code == CodeTooLarge && len(body) <= MaxBytes {
			continue
		}
		n++
		_, err := decodeRequest(body)
		if fault := faultOf(t, err); fault.Code != d.code || fault.Path != d.path {
			t.Errorf("%s: %s at %q, want %s at %q", name, fault.Code, fault.Path, d.code, d.path)
		}
	}
	if n < 100 {
		t.Errorf("only %d documents were tried", n)
	}
}

func TestRequest_WhatOnlyARequestGetsWrong(t *testing.T) {
	body, _ := asRequest(contractJob)
	for name, c := range map[string]struct{ body, code, path string }{
		"a version":              {strings.Replace(body, `{`, `{"v":1,`, 1), CodeUnknownName, "/v"},
		"a key":                  {strings.Replace(body, `{`, `{"key":"`+requestKey+`",`, 1), CodeUnknownName, "/key"},
		"a source":               {strings.Replace(body, `{`, `{"source":"wallet",`, 1), CodeUnknownName, "/source"},
		"no route":               {strings.Replace(body, `"route":"gbp-fps",`, ``, 1), CodeMissing, "/route"},
		"two routes":             {strings.Replace(body, `{`, `{"route":"gbp-fps",`, 1), CodeDuplicateName, "/route"},
		"H1 Route beside route":  {strings.Replace(body, `{`, `{"Route":"gbp-fps",`, 1), CodeCaseVariantName, "/route"},
		"H1 ROUTE":               {strings.Replace(body, `"route"`, `"ROUTE"`, 1), CodeCaseVariantName, "/route"},
		"H1 Amount":              {strings.Replace(body, `"amount"`, `"Amount"`, 1), CodeCaseVariantName, "/amount"},
		"a null route":           {strings.Replace(body, `"gbp-fps"`, `null`, 1), CodeNullValue, "/route"},
		"a number for a route":   {strings.Replace(body, `"gbp-fps"`, `1`, 1), CodeWrongType, "/route"},
		"an empty route":         {strings.Replace(body, `"gbp-fps"`, `""`, 1), CodeRouteName, "/route"},
		"a route of two tokens":  {strings.Replace(body, `"gbp-fps"`, `"gbp.fps"`, 1), CodeRouteName, "/route"},
		"a wildcard for a route": {strings.Replace(body, `"gbp-fps"`, `"*"`, 1), CodeRouteName, "/route"},
		"nothing":                {``, CodeEmpty, ""},
		"an empty object":        {`{}`, CodeMissing, "/route"},
		"a list":                 {`[]`, CodeNotAnObject, ""},
		"H2 two objects":         {body + `{}`, CodeTrailingData, ""},
		"H2 a bracket behind":    {body + `]`, CodeTrailingData, ""},
	} {
		_, err := decodeRequest(c.body)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if fault := faultOf(t, err); fault.Code != c.code || fault.Path != c.path {
			t.Errorf("%s: %s at %q, want %s at %q", name, fault.Code, fault.Path, c.code, c.path)
		}
	}
	if _, err := DecodeRequest("Wallet", uuid.MustParse(requestKey), []byte(body)); err == nil || faultOf(t, err).Code != CodeSourceName {
		t.Errorf("a source that is no name: %v", err)
	}
}

func TestRequest_EscapesInNamesDoNotMatter(t *testing.T) {
	body, _ := asRequest(contractJob)
	j, err := decodeRequest(strings.Replace(body, `"route":"gbp-fps"`, `"r\u006fute":"\u0067bp-fps"`, 1))
	if err != nil || j.Route != "gbp-fps" || j.Fingerprint() != mustDecode(t, contractJob).Fingerprint() {
		t.Errorf("route %q, err %v", j.Route, err)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	for _, doc := range goodDocuments() {
		if body, ok := asRequest(doc); ok {
			f.Add([]byte(body))
		}
	}
	f.Add([]byte(`{"route":"gbp-fps","Route":"gbp-fps"}`))
	f.Add([]byte(`{"v":1,"key":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		j, err := DecodeRequest("wallet", uuid.MustParse(requestKey), body)
		if !bytes.Equal(body, before) {
			t.Fatal("DecodeRequest changed the body")
		}
		if err != nil {
			var fault *Fault
			if !errors.As(err, &fault) || fault.Reason == "" || fault.Code == "" || fault.Detail == "" {
				t.Fatalf("no whole fault: %#v", err)
			}
			return
		}
		payload, err := Encode(j)
		if err != nil {
			if faultOf(t, err).Code == CodeTooLarge {
				return
			}
			t.Fatalf("Encode: %v", err)
		}
		back, err := Decode("wallet", j.Route, payload)
		if err != nil || back.Fingerprint() != j.Fingerprint() {
			t.Fatalf("another job: %s, %v", payload, err)
		}
	})
}
