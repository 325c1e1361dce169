package fleet

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"
)

// OperatorKind is the kind of the ids that name operators.
const OperatorKind = "opr"

// InstanceID names one instance for ever: a 3-letter lowercase kind followed by
// the 26-character lowercase Crockford base32 of a UUIDv7, 29 characters in
// all. Ids are never reused; the UUID's timestamp is the instance's age.
type InstanceID string

const (
	kindLength   = 3
	suffixLength = 26
	crockford    = "0123456789abcdefghjkmnpqrstvwxyz"
)

// CheckKind reports why s can't be the kind of an instance; nil when it can.
func CheckKind(s string) error {
	if !isKind(s) {
		return fmt.Errorf("%.80q is not a valid kind: want exactly three lowercase letters", s)
	}
	return nil
}

// isKind uses no pattern: ids are parsed where each stream of each agent begins,
// and a matcher would need more stack there than waiting on does.
func isKind(s string) bool {
	for n := range len(s) {
		if s[n] < 'a' || s[n] > 'z' {
			return false
		}
	}
	return len(s) == kindLength
}

// NewID makes an id of the given kind (which must pass CheckKind) from a time,
// kept to the millisecond, and 10 bytes read from random. It fails only when
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

// ParseID checks that s is an id and returns it.
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

// ParseStorageKey turns "{uuid}-{kind}" back into the id.
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

// Kind is the id's first three letters.
func (id InstanceID) Kind() string { return string(id[:kindLength]) }

// Time is when the id was made, to the millisecond. The id must be valid.
func (id InstanceID) Time() time.Time {
	u, _ := decode(string(id[kindLength:]))
	return time.UnixMilli(int64(binary.BigEndian.Uint64(u[0:]) >> 16)).UTC()
}

// StorageKey is "{uuid}-{kind}", which sorts by time in a listing. The id must
// be valid.
func (id InstanceID) StorageKey() string {
	u, _ := decode(string(id[kindLength:]))
	h := hex.EncodeToString(u[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:], id.Kind()}, "-")
}

// encode writes 128 bits as 26 base32 characters, the first of which carries
// only three of them.
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
