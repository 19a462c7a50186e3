package job

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/uuid"
)

const (
	requestKey  = "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"
	requestHead = `{"route":"gbp-fps",`
)

func decodeRequest(body string) (Job, error) {
	return DecodeRequest("wallet", uuid.MustParse(requestKey), []byte(body))
}

// TestB14_ARequestAndItsJobHaveOneFingerprint: what the gateway records is what a delivery of the recorded payload is judged by.
func TestB14_ARequestAndItsJobHaveOneFingerprint(t *testing.T) {
	for name, d := range goodUnder(t, requestHead) {
		j, err := decodeRequest(d.doc)
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
		if err != nil || delivered.Fingerprint() != j.Fingerprint() || mustDecode(t, d.was).Fingerprint() != j.Fingerprint() {
			t.Errorf("%s: another fingerprint, err %v", name, err)
		}
	}
}

// TestH_ARequestIsRefusedForWhatAJobIsRefusedFor, with the same code at the same place.
func TestH_ARequestIsRefusedForWhatAJobIsRefusedFor(t *testing.T) {
	refusedAlike(t, requestHead, func(body string) error { _, err := decodeRequest(body); return err })
}

func TestRequest_WhatOnlyARequestGetsWrong(t *testing.T) {
	body, _ := headed(contractJob, requestHead)
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
		wantFault(t, name, err, c.code, c.path)
	}
	if _, err := DecodeRequest("Wallet", uuid.MustParse(requestKey), []byte(body)); err == nil || faultOf(t, err).Code != CodeSourceName {
		t.Errorf("a source that is no name: %v", err)
	}
}

func TestRequest_EscapesInNamesDoNotMatter(t *testing.T) {
	body, _ := headed(contractJob, requestHead)
	j, err := decodeRequest(strings.Replace(body, `"route":"gbp-fps"`, `"r\u006fute":"\u0067bp-fps"`, 1))
	if err != nil || j.Route != "gbp-fps" || j.Fingerprint() != mustDecode(t, contractJob).Fingerprint() {
		t.Errorf("route %q, err %v", j.Route, err)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	for _, d := range goodUnder(f, requestHead) {
		f.Add([]byte(d.doc))
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
			wantWholeFault(t, err)
			return
		}
		sameDelivered(t, j)
	})
}
