package shards

import (
	"encoding/hex"
	"fmt"
	"io"
)

// NewKey returns a new idempotency key for CreateInstance, from a source of random bytes.
func NewKey(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("make an idempotency key: %w", err)
	}
	return "nsm-" + hex.EncodeToString(b[:]), nil
}
