package fleet

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// OperatorKind is the kind of operator IDs.
const OperatorKind = "opr"

// InstanceID identifies one instance: a 3-letter lowercase kind followed by the
// 26-character lowercase Crockford base32 of a UUIDv7, 29 characters in all.
// Ids are never reused; the UUID's timestamp is the instance's creation time.
type InstanceID string

const (
	kindLength   = 3
	suffixLength = 26
	crockford    = "0123456789abcdefghjkmnpqrstvwxyz"
)

// CheckKind reports why s is not a valid kind; nil if it is.
func CheckKind(s string) error {
	if !isKind(s) {
		return fmt.Errorf("%.80q is not a valid kind: want exactly three lowercase letters", s)
	}
	return nil
}

// idInText matches an id within a text.
var idInText = regexp.MustCompile(`\b[a-z]{3}[` + crockford + `]{26}\b`)

// WithoutIDs removes all ids from a message: repeated messages differ in them.
func WithoutIDs(message string) string { return idInText.ReplaceAllString(message, "") }

// isKind uses no regexp: ids are parsed at the start of every agent stream, and a regexp
// would grow that goroutine's stack beyond what the rest of the stream needs.
func isKind(s string) bool {
	for n := range len(s) {
		if s[n] < 'a' || s[n] > 'z' {
			return false
		}
	}
	return len(s) == kindLength
}

// NewID returns an id of the given kind (which must pass CheckKind), made of now,
// truncated to the millisecond, and 10 bytes read from random. It fails only if
// random does.
func NewID(kind string, now time.Time, random io.Reader) (InstanceID, error) {
	var u [16]byte
	if _, err := io.ReadFull(random, u[6:]); err != nil {
		return "", fmt.Errorf("read randomness for an id: %w", err)
	}
	ms := uint64(now.UnixMilli())
	binary.BigEndian.PutUint32(u[0:], uint32(ms>>16))
	binary.BigEndian.PutUint16(u[4:], uint16(ms))
	u[6] = u[6]&0x0f | 0x70 // version 7
	u[8] = u[8]&0x3f | 0x80 // RFC 9562 variant
	return InstanceID(kind + encode(u)), nil
}

// ParseID validates and returns an ID.
func ParseID(s string) (InstanceID, error) {
	const rule = "want a 3-letter kind and 26 lowercase Crockford base32 characters of a UUIDv7"
	if len(s) != kindLength+suffixLength || !isKind(s[:kindLength]) {
		return "", fmt.Errorf("%.80q is not an instance id: %s", s, rule)
	}
	u, ok := decode(s[kindLength:])
	if !ok || u[6]>>4 != 7 || u[8]>>6 != 2 {
		return "", fmt.Errorf("%.80q is not an instance id: %s", s, rule)
	}
	return InstanceID(s), nil
}

// ParseStorageKey is the inverse of InstanceID.StorageKey.
func ParseStorageKey(s string) (InstanceID, error) {
	uuid, kind, ok := cutLast(s, '-')
	raw, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
	if !ok || err != nil || len(raw) != 16 {
		return "", fmt.Errorf("%.80q is not a storage key: want {uuid}-{kind}", s)
	}
	id, err := ParseID(kind + encode([16]byte(raw)))
	if err != nil || id.StorageKey() != s {
		return "", fmt.Errorf("%.80q is not a storage key: want {uuid}-{kind}", s)
	}
	return id, nil
}

// Kind returns the id's first three letters.
func (id InstanceID) Kind() string { return string(id[:kindLength]) }

// Time returns when the id was made, to the millisecond. The id must be valid.
func (id InstanceID) Time() time.Time {
	u, _ := decode(string(id[kindLength:]))
	return time.UnixMilli(int64(binary.BigEndian.Uint64(u[0:]) >> 16)).UTC()
}

// StorageKey returns "{uuid}-{kind}", which sorts by time in a listing. The id must
// be valid.
func (id InstanceID) StorageKey() string {
	u, _ := decode(string(id[kindLength:]))
	h := hex.EncodeToString(u[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:], id.Kind()}, "-")
}

// encode returns u as 26 base32 characters. The first one carries only three bits.
func encode(u [16]byte) string {
	hi, lo := binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])
	var out [suffixLength]byte
	for i := suffixLength - 1; i >= 0; i-- {
		out[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:])
}

func decode(s string) (u [16]byte, ok bool) {
	if len(s) != suffixLength || s[0] > '7' {
		return u, false
	}
	var hi, lo uint64
	for i := range len(s) {
		v := strings.IndexByte(crockford, s[i])
		if v < 0 {
			return u, false
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(v)
	}
	binary.BigEndian.PutUint64(u[:8], hi)
	binary.BigEndian.PutUint64(u[8:], lo)
	return u, true
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
