package identities

import (
	"iter"
	"net/netip"
	"strings"
	"unicode"

	"github.com/nstance/nstance/pkg/fleet"
)

func alphanumeric(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// fields yields the longest parts of a text that consist of letters, digits and the given characters.
func fields(text, with string) iter.Seq[string] {
	return strings.FieldsFuncSeq(text, func(c rune) bool { return !alphanumeric(c) && !strings.ContainsRune(with, c) })
}

// wordsIn yields what may be a name or an id in a text: host names, of which some have underscores, and
// parts in the form of an id.
func wordsIn(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, with := range []string{".-", ".-_"} {
			for name := range fields(text, with) {
				if name = strings.Trim(name, ".-"); name != "" && !yield(name) {
					return
				}
			}
		}
		for word := range fields(text, "") {
			if _, err := fleet.ParseID(strings.ToLower(word)); err == nil && !yield(word) {
				return
			}
		}
	}
}

// longestIPv6 is the most parts between colons in an IPv6 address: "::" before or after seven groups.
const longestIPv6 = 9

// addressesIn yields the addresses in a text. One of IPv6 may begin and end at any colon; those within
// an own one are left out.
func addressesIn(text string, own func(netip.Addr) bool) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for field := range fields(text, ".:") {
			if !addressesOf(strings.Split(field, ":"), own, yield) {
				return
			}
		}
	}
}

// addressesOf yields the addresses that consist of adjacent parts, the longest first.
func addressesOf(parts []string, own, yield func(netip.Addr) bool) bool {
	for from := 0; from < len(parts); from++ {
		for to := min(len(parts), from+longestIPv6); to > from; to-- {
			addr, err := netip.ParseAddr(strings.Trim(strings.Join(parts[from:to], ":"), "."))
			if err != nil {
				continue
			}
			if own(addr.Unmap()) {
				from = to - 1
				break
			}
			if !yield(addr) {
				return false
			}
		}
	}
	return true
}
