package bankclient_test

import (
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
)

// The expected values were computed by another program (Python's hashlib, base64 and uuid) from the documented input.
func TestA7_PartnerKeyGoldenVectors(t *testing.T) {
	for _, v := range []struct {
		key, partner, step string
		epoch              int16
		partnerKey, id     string
	}{
		{"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "northbank", "create", 0,
			"e9331837-1561-8795-a87f-4705c6f4fadd", "5EZRQNYVMEDZKKD7I4C4N5H23U"},
		{"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "northbank", "create", 1,
			"1e8345e2-2b86-81ee-aac1-6efbbe3e9ca0", "D2BULYRLQYQ642WBN3534PU4UA"},
		{"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "northbank", "fund", 0,
			"961bc07a-b9f5-8e52-a164-3a2fbda7ae08", "SYN4A6VZ6UHFEILEHIX33J5OBA"},
		{"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "southbank", "create", 0,
			"01ad3019-bfbf-8f36-b471-62dbe77a5cb6", "AGWTAGN7X47TM5DRMLN6O6S4WY"},
		{"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a12", "northbank", "create", 0,
			"3d40e95a-e047-8f27-a92d-b78b0b50ff39", "HVAOSWXAI6PSP2JNW6FQWUH7HE"},
		{"f47ac10b-58cc-4372-a567-0e02b2c3d479", "op-1", "create", 0,
			"1b9564a1-e472-841d-a127-a98e7ce4050b", "DOKWJIPEOICB2YJHVGHHZZAFBM"},
		{"f47ac10b-58cc-4372-a567-0e02b2c3d479", "op-10", "create", 0,
			"d1f5fa69-04da-83ef-a216-893d39fe09a7", "2H27U2IE3KB66YQWRE6TT7QJU4"},
		{"ffffffff-ffff-4fff-bfff-ffffffffffff", "p", "create", 32767,
			"30ded3b7-27e3-8b54-8d57-0bd1c94131e9", "GDPNHNZH4MFVJDKXBPI4SQJR5E"},
	} {
		key := uuid.MustParse(v.key)
		if got := bankclient.PartnerKey(key, v.partner, v.step, v.epoch).String(); got != v.partnerKey {
			t.Errorf("partner key of %s %s %s %d = %s, want %s", v.key, v.partner, v.step, v.epoch, got, v.partnerKey)
		}
		if got := bankclient.EndToEndID(key, v.partner, v.step, v.epoch); got != v.id {
			t.Errorf("end-to-end id of %s %s %s %d = %s, want %s", v.key, v.partner, v.step, v.epoch, got, v.id)
		}
	}
}

// B3: nothing but key, partner and epoch reaches the partner key, and equal input gives equal bytes.
func TestB3_PartnerKeyIsIndependentOfEverythingElse(t *testing.T) {
	first := prepare(t, partnerAt(t, "http://127.0.0.1:1"))
	rapid.Check(t, func(rt *rapid.T) {
		cfg := config("http://" + rapid.StringMatching(`[a-z]{1,9}\.invalid`).Draw(rt, "host"))
		cfg.CredentialID = rapid.StringMatching(`[a-z0-9-]{1,9}`).Draw(rt, "credential")
		cfg.MaxInFlight = rapid.IntRange(1, 64).Draw(rt, "in flight")
		p, err := bankclient.New(cfg, reference.New())
		if err != nil {
			rt.Fatal(err)
		}
		pr, err := p.PrepareAs(1, uuid.MustParse(opKey), 0, withdrawal())
		if err != nil {
			rt.Fatal(err)
		}
		if pr.PartnerKey != opPartner || pr.EndToEndID != opEndToEnd || pr.BodySHA256 != first.BodySHA256 {
			rt.Fatalf("partner key %s, end-to-end id %s", pr.PartnerKey, pr.EndToEndID)
		}
	})
}
