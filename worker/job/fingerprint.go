package job

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/paidonce/paidonce/ledger"
)

// fingerprintVersion is the version that new operations are recorded with. A version, once published, keeps its function
// for ever: rows are compared under the version that they name.
const fingerprintVersion = 1

// fingerprintDomain separates these hashes from every other use of SHA-256; its NUL cannot occur in what follows it.
const fingerprintDomain = "paidonce/job/fingerprint/1\x00"

// The types of a field in the hashed bytes.
const (
	typeAbsent  = '-'
	typeUUID    = 'u' // 16 bytes
	typeToken   = 'a' // ASCII, compared byte by byte
	typeText    = 't' // free text: UTF-8 in NFC
	typeInt     = 'i' // int64, big endian, two's complement
	typeInstant = 'z' // seconds since 1970 as int64, then nanoseconds as uint32, both big endian
)

// Fingerprint identifies what the job asks for, by the current version.
func (j Job) Fingerprint() ledger.Fingerprint {
	return ledger.Fingerprint{Version: fingerprintVersion, Sum: j.fingerprint1()}
}

// FingerprintAs is Fingerprint by the version that a row names. False: this program does not know the version, and the
// operation belongs to a newer worker. That is no conflict.
func (j Job) FingerprintAs(version int16) (ledger.Fingerprint, bool) {
	if version != 1 {
		return ledger.Fingerprint{}, false
	}
	return ledger.Fingerprint{Version: 1, Sum: j.fingerprint1()}, true
}

// fingerprint1 hashes the domain and then every field in the order below: number (1 byte), type (1 byte), length (uint32,
// big endian), value. An absent field is written too. Metadata is left out: it does not say what is paid.
//
// NFC is stable over versions of Unicode for assigned characters. Text with a character that gets assigned later could get
// another form then, and a redelivery to a newer build would be a conflict: a dead letter, never a second send.
// After 30 combining marks in a row x/text puts in a joiner (U+034F, Stream-Safe Text Format); no name has so many.
func (j Job) fingerprint1() [32]byte {
	var space [1024]byte
	b := append(space[:0], fingerprintDomain...)
	b = append(b, 1, typeUUID, 0, 0, 0, 16)
	b = append(b, j.Key[:]...)
	b = appendToken(b, 2, j.Source)
	b = appendToken(b, 3, j.Route)
	b = appendText(b, 4, j.DebtorAccount)
	b = append(b, 5, typeInt, 0, 0, 0, 8)
	b = binary.BigEndian.AppendUint64(b, uint64(j.Amount.Minor))
	b = appendToken(b, 6, j.Amount.Currency)
	b = appendText(b, 7, j.Beneficiary.Name)
	b = appendToken(b, 8, j.Beneficiary.IBAN.Reveal())
	b = appendToken(b, 9, j.Beneficiary.BIC.Reveal())
	b = appendToken(b, 10, j.Beneficiary.SortCode.Reveal())
	b = appendToken(b, 11, j.Beneficiary.AccountNumber.Reveal())
	b = appendToken(b, 12, j.Beneficiary.RoutingNumber.Reveal())
	b = appendToken(b, 13, j.Beneficiary.PixKey.Reveal())
	b = appendText(b, 14, j.Reference)
	b = appendInstant(b, 15, j.NotBefore)
	b = appendInstant(b, 16, j.NotAfter)
	return sha256.Sum256(b)
}

func appendAbsent(b []byte, number byte) []byte {
	return append(b, number, typeAbsent, 0, 0, 0, 0)
}

func appendToken(b []byte, number byte, value string) []byte {
	if value == "" {
		return appendAbsent(b, number)
	}
	b = append(b, number, typeToken)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

func appendText(b []byte, number byte, value Sensitive) []byte {
	if value == "" {
		return appendAbsent(b, number)
	}
	b = append(b, number, typeText, 0, 0, 0, 0)
	start := len(b)
	if text := value.Reveal(); only(text, ascii) {
		b = append(b, text...) // ASCII is in NFC, and is nearly all there is
	} else {
		b = append(b, norm.NFC.String(text)...)
	}
	binary.BigEndian.PutUint32(b[start-4:], uint32(len(b)-start))
	return b
}

func appendInstant(b []byte, number byte, at time.Time) []byte {
	if at.IsZero() {
		return appendAbsent(b, number)
	}
	b = append(b, number, typeInstant, 0, 0, 0, 12)
	b = binary.BigEndian.AppendUint64(b, uint64(at.Unix()))
	return binary.BigEndian.AppendUint32(b, uint32(at.Nanosecond()))
}
