package kinds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
)

// longest is how many bytes of a name go into its file's name: file systems allow 255,
// including the ending and the prefix of temporary files.
const longest = 230

// escape converts a name to a file name: all bytes but letters, digits, dots, dashes and
// underscores become %XX, and so does a leading dot, which would hide the file. A name that is
// too long is cut and ends in ~ and a hash.
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

// unescape returns the name for a file name; false if the name was cut, and is only in the
// object.
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
