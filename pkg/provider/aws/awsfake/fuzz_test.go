package awsfake

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzForm: whatever body comes, the answer is a reply or a refusal with a code, and
// what is accepted was understood.
func FuzzForm(f *testing.F) {
	for _, body := range []string{
		"", "Version=2016-11-15", "Action=RunInstances&Version=2016-11-15&ImageId=ami-00000001&MinCount=1&MaxCount=1",
		"Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag:a&Filter.1.Value.1=*&MaxResults=5&NextToken=c2tpcDo1",
		"Action=TerminateInstances&Version=2016-11-15&InstanceId.1=i-00000001&InstanceId.2=x", "Version=2016-11-15&A=1&A=2", "%zz",
		"Action=DescribeImages&Version=2016-11-15&Owner.1=self&Owner.3=x", "Action=DescribeSubnets&Version=2016-11-15&SubnetId.9999999999=1",
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		p, err := parseForm(body)
		if err == nil {
			cloud := New(Config{Now: func() time.Time { return time.Unix(1, 0) }})
			for _, a := range actions() {
				if err = p.only(a.params); err == nil {
					_, err = a.perform(cloud, p)
				}
				check(t, body, err)
			}
			if again, err := parseForm(p.canonical()); err != nil || again.canonical() != p.canonical() {
				t.Errorf("%q: read again it is %v, %v", body, again, err)
			}
		}
		check(t, body, err)
	})
}

func check(t *testing.T, body string, err error) {
	t.Helper()
	var refused *Error
	if err != nil && (!errors.As(err, &refused) || refused.Code == "" || refused.Status < 400) {
		t.Errorf("%q: %v is no refusal of EC2", body, err)
	}
}

// FuzzWild: a value matches itself once it is escaped, and a star matches all.
func FuzzWild(f *testing.F) {
	f.Add("a?b", "a*b")
	f.Add(`a\*`, "x")
	f.Fuzz(func(t *testing.T, value, other string) {
		if !utf8.ValidString(value) || !utf8.ValidString(other) {
			t.Skip("XML has no such texts")
		}
		escaped := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`).Replace(value)
		if !wild([]rune(escaped), []rune(value)) || !wild([]rune("*"), []rune(value)) || !wild([]rune("*"+escaped+"*"), []rune(other+value)) {
			t.Errorf("%q does not match itself", value)
		}
		if wild([]rune(escaped), []rune(other)) != (value == other) {
			t.Errorf("%q and %q", value, other)
		}
	})
}
