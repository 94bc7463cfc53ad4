// Package manual holds the tests of what is generated for people and their tools: manual
// pages for mandoc, completion in real shells, and the schema of the job file by
// jsonschema. They promise that each is taken by the program that it is for; whether the
// written reference is current is tested in cmd/ddpbatch, and prose is not tested here.
package manual
