package kinds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
)

// longest is how many bytes of a name a file's name takes: file systems allow 255,
// and there is an ending, and what is put before a file that is being written.
const longest = 230

// escape makes a name a file's name: all but letters, digits, dots, dashes and
// underscores become %XX, and so does a dot that begins it, for a file that begins
// with one is hidden. What is too long ends in a ~ and a hash.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' && i > 0
		if plain {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() <= longest {
		return b.String()
	}
	sum := sha256.Sum256([]byte(name))
	return b.String()[:longest-17] + "~" + hex.EncodeToString(sum[:8])
}

// unescape returns the name that a file's name stands for; false when it is in the
// object alone, because it is too long.
func unescape(file string) (string, bool) {
	if strings.Contains(file, "~") {
		return "", false
	}
	name, err := url.PathUnescape(file)
	if err != nil {
		return file, true
	}
	return name, true
}
