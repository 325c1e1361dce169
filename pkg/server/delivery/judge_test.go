package delivery_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server/delivery"
)

// TestJudge: reports on a set of one text and one certificate, and the decisions on them.
func TestJudge(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	sum := func(n byte) (s delivery.Sum) { s[0] = n; return s }
	text := delivery.Wanted{Name: "a.conf", Sum: sum(1)}
	cert := delivery.Wanted{Name: "k.crt", Sum: sum(2), Key: "k", TTL: 9 * time.Hour}
	want := &delivery.Set{Hash: "h", Files: []delivery.Wanted{text, cert}}
	goodText := delivery.FileStatus{Name: "a.conf", State: delivery.Present, SHA256: sum(1)}
	goodCert := delivery.FileStatus{Name: "k.crt", State: delivery.Present, SHA256: sum(7), PublicKey: sum(8),
		NotAfter: now.Add(4 * time.Hour)}
	keys := map[string]delivery.Sum{"k": sum(8)}
	issued := map[string]delivery.Issued{"k.crt": {Content: sum(7), Request: sum(2)}}
	end := now.Add(1000 * time.Hour)
	said := func(hash string, files ...delivery.FileStatus) *delivery.FileReport {
		return &delivery.FileReport{ConfigHash: hash, Files: files}
	}
	but := func(st delivery.FileStatus, change func(*delivery.FileStatus)) delivery.FileStatus {
		change(&st)
		return st
	}
	known := delivery.Known{Keys: keys, Issued: issued, CAEnd: end}
	push := func(send ...delivery.Wanted) delivery.Decision { return delivery.Decision{Push: true, Send: send} }
	for what, c := range map[string]struct {
		report *delivery.FileReport
		known  delivery.Known
		want   delivery.Decision
	}{
		"in order":      {said("h", goodText, goodCert), known, delivery.Decision{}},
		"nothing yet":   {said(""), known, push(text, cert)},
		"another hash":  {said("g", goodText, goodCert), known, push()},
		"altered text":  {said("h", but(goodText, func(f *delivery.FileStatus) { f.SHA256 = sum(3) }), goodCert), known, push(text)},
		"missing text":  {said("h", goodCert), known, push(text)},
		"failed text":   {said("h", but(goodText, func(f *delivery.FileStatus) { f.State = delivery.Failed }), goodCert), known, push(text)},
		"missing cert":  {said("h", goodText), known, push(cert)},
		"another's key": {said("h", goodText, but(goodCert, func(f *delivery.FileStatus) { f.PublicKey = sum(9) })), known, push(cert)},
		"a third left": {said("h", goodText, but(goodCert, func(f *delivery.FileStatus) { f.NotAfter = now.Add(3 * time.Hour) })), known,
			push(cert)},
		"a little more": {said("h", goodText, but(goodCert, func(f *delivery.FileStatus) { f.NotAfter = now.Add(3*time.Hour + 1) })), known,
			delivery.Decision{}},
		"expired": {said("h", goodText, but(goodCert, func(f *delivery.FileStatus) { f.NotAfter = now.Add(-time.Hour) })), known,
			push(cert)},
		"end of the CA": {said("h", goodText, but(goodCert, func(f *delivery.FileStatus) { f.NotAfter = now.Add(time.Hour) })),
			delivery.Known{Keys: keys, Issued: issued, CAEnd: now.Add(time.Hour)}, delivery.Decision{}},
		"no key submitted": {said("h", goodText, goodCert), delivery.Known{CAEnd: end}, delivery.Decision{Await: []string{"k"}}},
		"no key, no files": {said(""), delivery.Known{CAEnd: end}, delivery.Decision{Await: []string{"k"}}},
		"says otherwise": {said("h", goodText, goodCert), delivery.Known{Keys: keys,
			Issued: map[string]delivery.Issued{"k.crt": {Content: sum(7), Request: sum(4)}}, CAEnd: end}, push(cert)},
		"forgotten": {said("h", goodText, goodCert), delivery.Known{Keys: keys, CAEnd: end},
			delivery.Decision{Adopt: []delivery.Wanted{cert}}},
		"forgotten, old": {said("g", goodText, goodCert), delivery.Known{Keys: keys, CAEnd: end}, push(cert)},
		"another than ours": {said("g", goodText, goodCert), delivery.Known{
			Keys: keys, Issued: map[string]delivery.Issued{"k.crt": {Content: sum(5), Request: sum(2)}}, CAEnd: end,
		}, push(cert)},
	} {
		if have := delivery.Judge(want, c.report, c.known, now); !reflect.DeepEqual(have, c.want) {
			t.Errorf("%s: %+v, want %+v", what, have, c.want)
		}
	}
	if have := delivery.Judge(&delivery.Set{Hash: "h"}, said("h", goodText), delivery.Known{}, now); have.Push {
		t.Errorf("an empty set: %+v", have)
	}
}
