package bankclient

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"

	"github.com/google/uuid"
)

// PartnerKey derives what the partner sees as idempotency key: a pure function of the operation key, the partner's id, the
// step of the partner's protocol and the epoch. It is a version 8 UUID, so that partners that insist on UUIDs take it.
//
// The input that is hashed is "paidonce/partner-key/1", the key in canonical form, partner id, step and decimal epoch,
// joined by NUL bytes. It may never change: the partner remembers the old one.
func PartnerKey(key uuid.UUID, partnerID, step string, epoch int16) uuid.UUID {
	return partnerKey(keySum(key, partnerID, step, epoch))
}

func partnerKey(sum [32]byte) uuid.UUID {
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}

// EndToEndID derives the reference that travels with the transfer through the clearing: 26 upper-case base32 characters of
// the first 128 bits of the same hash. It fits every limit known (ISO 20022: 35, Faster Payments: 31).
func EndToEndID(key uuid.UUID, partnerID, step string, epoch int16) string {
	return endToEndID(keySum(key, partnerID, step, epoch))
}

func endToEndID(sum [32]byte) string {
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16])
}

func keySum(key uuid.UUID, partnerID, step string, epoch int16) [32]byte {
	var text [36]byte
	const hexDigits = "0123456789abcdef"
	at := 0
	for i, c := range key {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text[at] = '-'
			at++
		}
		text[at], text[at+1] = hexDigits[c>>4], hexDigits[c&15]
		at += 2
	}
	input := make([]byte, 0, 160)
	input = append(input, "paidonce/partner-key/1\x00"...)
	input = append(input, text[:]...)
	input = append(input, 0)
	input = append(input, partnerID...)
	input = append(input, 0)
	input = append(input, step...)
	input = append(input, 0)
	input = strconv.AppendInt(input, int64(epoch), 10)
	return sha256.Sum256(input)
}
