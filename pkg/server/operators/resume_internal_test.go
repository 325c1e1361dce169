package operators

import "testing"

// FuzzResumeToken: only tokens written by a server are accepted.
func FuzzResumeToken(f *testing.F) {
	for _, seed := range []string{
		"", "7.all.12.0123456789abcdef", "7.leaving.0.0123456789abcdef", "18446744073709551615.all.18446744073709551615.ffffffffffffffff",
		"7.all", "7.all.12", "07.all.1.0123456789abcdef", "7.all.+1.0123456789abcdef", "...", "7.x.1.0123456789abcdef",
		"7.all.1.0123456789ABCDEF", "7.all.1.0123456789abcd", "7.all.1.0123456789abcdefg",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := parseResumeToken(text)
		switch {
		case err != nil && token != resumeToken{}:
			t.Errorf("%q: %+v and %v", text, token, err)
		case err == nil && text != "" && token.String() != text:
			t.Errorf("%q is read as %q", text, token)
		case text == "" && (err != nil || token.within(resumeToken{}) != 0):
			t.Errorf("none is read as %q, %v", token, err)
		}
	})
}
