


SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

SET default_table_access_method = heap;


CREATE TABLE public.backlog (
    "user" text NOT NULL,
    number bigint NOT NULL,
    body bytea NOT NULL
);



CREATE TABLE public.filters (
    name text NOT NULL,
    since bigint NOT NULL,
    schema bytea NOT NULL,
    key text
);



CREATE TABLE public.keys (
    "user" text NOT NULL,
    key text NOT NULL,
    request bytea NOT NULL,
    first bigint NOT NULL,
    count bigint NOT NULL
);



CREATE TABLE public.log (
    "position" bigint NOT NULL,
    at double precision NOT NULL,
    kind text NOT NULL,
    filter text NOT NULL,
    "user" text NOT NULL,
    body bytea NOT NULL,
    subscription bigint,
    until bigint,
    expires double precision,
    manner text
);



CREATE TABLE public.marks (
    "user" text NOT NULL,
    low bigint NOT NULL,
    beyond bytea NOT NULL
);



CREATE TABLE public.state (
    name text NOT NULL,
    value bigint NOT NULL
);



CREATE TABLE public.user_accounts (
    name text NOT NULL,
    hash text NOT NULL,
    roles text NOT NULL,
    made double precision NOT NULL,
    since bigint NOT NULL
);



CREATE TABLE public.user_gone (
    name text NOT NULL
);



CREATE TABLE public.user_stamp (
    stamp bigint NOT NULL
);



CREATE TABLE public.user_tokens (
    id bigint NOT NULL,
    digest bytea NOT NULL,
    owner text NOT NULL,
    label text NOT NULL,
    made double precision NOT NULL,
    expires double precision,
    revoked double precision
);



CREATE SEQUENCE public.user_tokens_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;



ALTER SEQUENCE public.user_tokens_id_seq OWNED BY public.user_tokens.id;



ALTER TABLE ONLY public.user_tokens ALTER COLUMN id SET DEFAULT nextval('public.user_tokens_id_seq'::regclass);



INSERT INTO public.backlog VALUES ('bob', 1, '\x5b5b352c5b335d2c6e756c6c5d2c5b362c5b335d2c6e756c6c5d5d');
INSERT INTO public.backlog VALUES ('bob', 2, '\x5b5b31302c5b335d2c6e756c6c5d2c5b31312c5b335d2c6e756c6c5d5d');
INSERT INTO public.backlog VALUES ('ann', 2, '\x5b5b31312c5b325d2c6e756c6c5d5d');



INSERT INTO public.filters VALUES ('default', 1, '\x5b7b226e616d65223a227072696365222c2274797065223a22666c6f6174227d2c7b226e616d65223a2273796d626f6c222c2274797065223a22737472227d5d', 'symbol');



INSERT INTO public.keys VALUES ('carl', 'k1', '\x3d623fcd84d54148db1ab0aec44925c643c1a20ae345c6e437d7ab5b5945da1d', 5, 3);



INSERT INTO public.log VALUES (3, 1800000000, 'subscribe', 'default', 'bob', '\x7b227768657265223a227072696365203e2035222c226d65746164617461223a7b2261223a317d2c2274746c223a313030303030303030302c22646967657374223a36302e307d', 3, NULL, 2800000000, '{"digest":60.0}');
INSERT INTO public.log VALUES (5, 1800000000, 'event', 'default', 'carl', '\x7b227072696365223a20372c202273796d626f6c223a202241227d', NULL, NULL, NULL, NULL);
INSERT INTO public.log VALUES (6, 1800000000, 'event', 'default', 'carl', '\x7b227072696365223a2032302c202273796d626f6c223a202241227d', NULL, NULL, NULL, NULL);
INSERT INTO public.log VALUES (7, 1800000000, 'event', 'default', 'carl', '\x7b227072696365223a20332c202273796d626f6c223a202241227d', NULL, NULL, NULL, NULL);
INSERT INTO public.log VALUES (4, 1800000000, 'subscribe', 'default', 'ann', '\x7b227768657265223a227072696365203e2031227d', 4, 8, NULL, NULL);
INSERT INTO public.log VALUES (8, 1800000000, 'unsubscribe', 'default', 'ann', '\x7b22726561736f6e223a2272656d6f766564227d', 4, 8, NULL, NULL);
INSERT INTO public.log VALUES (2, 1800000000, 'subscribe', 'default', 'ann', '\x7b227768657265223a227072696365203e203130227d', 2, 9, NULL, NULL);
INSERT INTO public.log VALUES (9, 1800000000, 'replace', 'default', 'ann', '\x7b227768657265223a227072696365203e203135222c226f72646572223a226b6579227d', 2, NULL, NULL, '{"order":"key"}');
INSERT INTO public.log VALUES (10, 1800000000, 'event', 'default', 'carl', '\x7b227072696365223a2031322c202273796d626f6c223a202242227d', NULL, NULL, NULL, NULL);
INSERT INTO public.log VALUES (11, 1800000000, 'event', 'default', 'carl', '\x7b227072696365223a2031362c202273796d626f6c223a202242227d', NULL, NULL, NULL, NULL);



INSERT INTO public.marks VALUES ('bob', 4, '\x5b5d');
INSERT INTO public.marks VALUES ('ann', 10, '\x5b5d');



INSERT INTO public.state VALUES ('version', 1);
INSERT INTO public.state VALUES ('epoch', 4096895817882208829);
INSERT INTO public.state VALUES ('head', 1);
INSERT INTO public.state VALUES ('settled', 11);



INSERT INTO public.user_accounts VALUES ('ann', '$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ$aGFzaA', 'admin', 1795425351.811468, 1);






INSERT INTO public.user_stamp VALUES (2);



INSERT INTO public.user_tokens VALUES (1, '\x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', 'ann', 'laptop', 1795425351.813414, NULL, NULL);



SELECT pg_catalog.setval('public.user_tokens_id_seq', 1, true);



ALTER TABLE ONLY public.backlog
    ADD CONSTRAINT backlog_pkey PRIMARY KEY ("user", number);



ALTER TABLE ONLY public.filters
    ADD CONSTRAINT filters_pkey PRIMARY KEY (name);



ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY ("user", key);



ALTER TABLE ONLY public.log
    ADD CONSTRAINT log_pkey PRIMARY KEY ("position");



ALTER TABLE ONLY public.marks
    ADD CONSTRAINT marks_pkey PRIMARY KEY ("user");



ALTER TABLE ONLY public.state
    ADD CONSTRAINT state_pkey PRIMARY KEY (name);



ALTER TABLE ONLY public.user_accounts
    ADD CONSTRAINT user_accounts_pkey PRIMARY KEY (name);



ALTER TABLE ONLY public.user_gone
    ADD CONSTRAINT user_gone_pkey PRIMARY KEY (name);



ALTER TABLE ONLY public.user_tokens
    ADD CONSTRAINT user_tokens_digest_key UNIQUE (digest);



ALTER TABLE ONLY public.user_tokens
    ADD CONSTRAINT user_tokens_pkey PRIMARY KEY (id);



CREATE INDEX changes ON public.log USING btree (filter, "position") WHERE (subscription IS NOT NULL);



CREATE INDEX ix_user_tokens_owner ON public.user_tokens USING btree (owner);



CREATE INDEX live ON public.log USING btree (subscription) WHERE ((until IS NULL) AND (subscription IS NOT NULL));



CREATE INDEX live_of_user ON public.log USING btree ("user", subscription) WHERE ((until IS NULL) AND (subscription IS NOT NULL));




