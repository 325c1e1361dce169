package identities

import (
	"net/url"
	"strings"
)

// maxForms is how many forms a text of a certificate may have.
const maxForms = 8

// forms returns what a reader may take a text for: the text itself, and what decoding its
// percent-encodings once or repeatedly makes of it, in that order. complete is false if there
// are more than the maxForms that it returns.
func forms(text string) (all []string, complete bool) {
	for range maxForms {
		all = append(all, text)
		next := unescape(text)
		if next == text {
			return all, true
		}
		text = next
	}
	return all, false
}

// unescape decodes the percent-encodings in a text. What follows a percent sign and is none is
// left as it is, as in a query, where any text is valid.
func unescape(text string) string {
	before, rest, found := strings.Cut(text, "%")
	if !found {
		return text
	}
	var plain strings.Builder
	plain.WriteString(before)
	for part := range strings.SplitSeq(rest, "%") {
		digits := part[:min(2, len(part))]
		char, err := url.PathUnescape("%" + digits)
		if err != nil {
			char = "%" + digits
		}
		plain.WriteString(char + part[len(digits):])
	}
	return plain.String()
}
