package job

import (
	"errors"
	"testing"

	"github.com/google/uuid"
)

func TestA12_ParseKey(t *testing.T) {
	const want = "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"
	for _, text := range []string{want, "01939E1C-7A52-7C3E-9B6E-2F6F0B0F4A11", "01939e1c-7A52-7c3e-9B6E-2f6f0b0f4a11"} {
		if key, err := ParseKey(text); err != nil || key.String() != want {
			t.Errorf("ParseKey(%s) = %s, %v", text, key, err)
		}
	}
	for text, want := range map[string]error{
		"":                                     ErrKeyForm,
		want[:35]:                              ErrKeyForm, // a key is never the prefix of another
		want + "0":                             ErrKeyForm,
		"op-1":                                 ErrKeyForm,
		"op-10":                                ErrKeyForm,
		"01939e1c7a527c3e9b6e2f6f0b0f4a11":     ErrKeyForm,
		"{" + want + "}":                       ErrKeyForm,
		"urn:uuid:" + want:                     ErrKeyForm,
		"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a1 ": ErrKeyForm,
		"01939e1c_7a52_7c3e_9b6e_2f6f0b0f4a11": ErrKeyForm,
		"00000000-0000-0000-0000-000000000000": ErrKeyReserved,
		"ffffffff-ffff-ffff-ffff-ffffffffffff": ErrKeyReserved,
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF": ErrKeyReserved,
	} {
		if key, err := ParseKey(text); !errors.Is(err, want) || key != (uuid.UUID{}) && want == ErrKeyForm {
			t.Errorf("ParseKey(%q) = %s, %v, want %v", text, key, err, want)
		}
	}
}

func TestNewKey(t *testing.T) {
	last := NewKey()
	for range 1000 {
		key := NewKey()
		if key.Version() != 7 || key.Variant() != uuid.RFC4122 {
			t.Fatalf("%s is no version 7", key)
		}
		if key.String() <= last.String() {
			t.Fatalf("%s does not stand behind %s", key, last)
		}
		last = key
	}
}

func TestSubjectAndMsgID(t *testing.T) {
	if got := Subject("gbp-fps", "wallet"); got != "withdrawals.jobs.gbp-fps.wallet" {
		t.Errorf("Subject = %s", got)
	}
	key := uuid.MustParse("01939E1C-7A52-7C3E-9B6E-2F6F0B0F4A11")
	// SHA-256 of "abc", from FIPS 180-2.
	if got := MsgID("wallet", key, []byte("abc")); got != "wallet:01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11:ba7816bf8f01cfea" {
		t.Errorf("MsgID = %s", got)
	}
}
